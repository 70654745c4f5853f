package broker

import (
	"context"
	"log/slog"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/login"
	"github.com/carillon-mq/carillon/broker/session"
)

// users are the users of this broker. The zero value has none.
type users struct {
	file  *login.File
	login *login.Login
	etcd  *etcdUsers // nil: the users are not in etcd
}

// authenticates reports whether clients must authenticate.
func (c *Config) authenticates() bool { return c.Users != "" || c.UsersFromEtcd || c.Auth.Given() }

// authenticator returns what authenticates clients, or nil if nothing does.
func (u *users) authenticator(c *Config) (_ session.Authenticator, err error) {
	switch {
	case c.UsersFromEtcd:
		if u.etcd, err = newEtcdUsers(c.Data, c.Logger); err != nil {
			return nil, err
		}
		return u.etcd.login, nil
	case c.Users != "":
		u.file = &login.File{Path: c.Users}
		table, err := u.file.Read()
		if err != nil {
			return nil, err
		}
		if u.login, err = login.New(table); err != nil {
			return nil, err
		}
		return u.login, nil
	case c.Auth.Given():
		return c.Auth, nil
	}
	return nil, nil
}

// behalf decides what the broker may do on behalf of users; nil: there are none.
func (u *users) behalf() *identity.Behalf {
	switch {
	case u.etcd != nil:
		return u.etcd.login.Behalf()
	case u.login != nil:
		return u.login.Behalf()
	}
	return nil
}

// follow applies changes of the users until ctx ends.
func (u *users) follow(ctx context.Context, log *slog.Logger, hub *session.Hub) {
	if u.etcd != nil {
		u.etcd.follow(ctx, log, hub)
	}
	if u.file == nil {
		return
	}
	u.file.Follow(ctx, log, func(t *identity.Table) {
		u.login.Set(t)
		hub.Recheck()
	})
}
