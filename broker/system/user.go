package system

import (
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
)

// account is the name of nats-server's only account without configuration.
const account = "$G"

// userInfo says who a client is, with nats-server's fields.
type userInfo struct {
	Account     string           `json:"account"`
	AccountName string           `json:"account_name"`
	User        string           `json:"user"`
	Permissions *userPermissions `json:"permissions,omitempty"`
	Expires     time.Duration    `json:"expires,omitempty"` // from now
}

type userPermissions struct {
	Publish   *identity.Subjects `json:"publish,omitempty"`
	Subscribe *identity.Subjects `json:"subscribe,omitempty"`
	Responses *responses         `json:"responses,omitempty"`
}

type responses struct {
	Max int           `json:"max"`
	TTL time.Duration `json:"ttl"`
}

// describe describes a client; nil: it may do everything.
func describe(is *identity.Identity) userInfo {
	info := userInfo{Account: account, AccountName: account}
	if is == nil {
		return info
	}
	info.User = is.Name
	if !is.Expires.IsZero() {
		info.Expires = time.Until(is.Expires)
	}
	if p := is.Permissions; p != nil {
		info.Permissions = &userPermissions{Publish: p.Publish, Subscribe: p.Subscribe}
		if most, within := is.Responses(); most != 0 {
			info.Permissions.Responses = &responses{most, within}
		}
	}
	return info
}
