package coordination

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/carillon-mq/carillon/broker/identity"
)

// UserSet is the users of the cluster, with verifiers and no secrets. It is never changed.
type UserSet struct {
	identity.Document // sorted by name
	// Generation counts the sets that were written.
	Generation int64
	// Wrong are the users whose values are unreadable. The Document lacks them.
	Wrong []*identity.UserError
}

// The key users has what all users share, and users/<name> has one user. A set whose differences
// don't fit into one transaction is marked as partial by the first one, and completed by the last
// one. Followers keep the set before until then.
type usersValue struct {
	V          int                   `json:"v"`
	Generation int64                 `json:"generation"`
	Users      int                   `json:"users"` // number of keys
	Partial    bool                  `json:"partial,omitempty"`
	Default    *identity.Permissions `json:"defaultPermissions,omitempty"`
	Anonymous  string                `json:"anonymous,omitempty"`
}

type userValue struct {
	V int `json:"v"`
	identity.User
}

const (
	usersValueVersion = 1
	userValueVersion  = 1
	// maxUserValue bounds one value in bytes. One user's and the settings fit into a transaction,
	// within etcd's limit of 1.5 MiB.
	maxUserValue = 512 << 10
)

func (c *Client) usersKey() string           { return c.prefix + "users" }
func (c *Client) userKey(name string) string { return c.usersKey() + "/" + url.PathEscape(name) }

// userKey is the value of one user's key.
type userKey struct {
	revision int64
	text     string
	user     *identity.User
	wrong    *identity.UserError // user is nil
}

// decodeUser decodes a key below users/. A field that is unknown here may take rights away, so it
// is a mistake.
func (c *Client) decodeUser(kv *mvccpb.KeyValue) userKey {
	k := userKey{revision: kv.GetModRevision(), text: string(kv.GetValue())}
	escaped := strings.TrimPrefix(string(kv.GetKey()), c.usersKey()+"/")
	name, err := url.PathUnescape(escaped)
	if err != nil {
		name = escaped
	}
	var value userValue
	if err == nil {
		err = decodeValue(string(kv.GetKey()), kv.GetValue(), userValueVersion, &value, &value.V)
	}
	if err == nil {
		d := json.NewDecoder(strings.NewReader(k.text))
		d.DisallowUnknownFields()
		if err = d.Decode(new(userValue)); err != nil {
			err = fmt.Errorf("%w (upgrade this program)", err)
		}
	}
	if err == nil && value.Name != name {
		err = errors.New("the key has another name than the value")
	}
	if err != nil {
		k.wrong = &identity.UserError{User: name, Err: err}
	} else {
		k.user = &value.User
	}
	return k
}

func encodeUser(u *identity.User) (string, error) {
	data, err := json.Marshal(userValue{userValueVersion, *u})
	if err == nil && len(data) > maxUserValue {
		err = fmt.Errorf("its description has %d bytes; at most %d can be kept (give fewer patterns)", len(data), maxUserValue)
	}
	return string(data), err
}

func encodeUsers(v usersValue) (string, error) {
	v.V = usersValueVersion
	data, err := json.Marshal(v)
	if err == nil && len(data) > maxUserValue {
		err = fmt.Errorf("the default permissions have %d bytes; at most %d can be kept (give fewer patterns)", len(data), maxUserValue)
	}
	return string(data), err
}

// userKeys are the keys of the users.
type userKeys struct {
	settings *usersValue // nil: none
	revision int64       // of the settings
	users    map[string]userKey
}

func (u *userKeys) putSettings(kv *mvccpb.KeyValue) error {
	var value usersValue
	if err := decodeValue("the users", kv.GetValue(), usersValueVersion, &value, &value.V); err != nil {
		return err
	}
	u.settings, u.revision = &value, kv.GetModRevision()
	return nil
}

// whole reports whether all transactions of a set were carried out.
func (u *userKeys) whole() bool {
	return u.settings != nil && !u.settings.Partial && u.settings.Users == len(u.users)
}

// set returns the set of the keys.
func (u *userKeys) set() *UserSet {
	s := &UserSet{Generation: u.settings.Generation}
	s.Default, s.Anonymous = u.settings.Default, u.settings.Anonymous
	s.Users = make([]identity.User, 0, len(u.users))
	for _, k := range u.users {
		if k.wrong != nil {
			s.Wrong = append(s.Wrong, k.wrong)
		} else {
			s.Users = append(s.Users, *k.user)
		}
	}
	slices.SortFunc(s.Users, func(a, b identity.User) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Wrong, func(a, b *identity.UserError) int { return strings.Compare(a.User, b.User) })
	return s
}

// UserSize returns the size of a user in etcd, or an error if that is more than etcd takes.
func UserSize(u *identity.User) (int, error) {
	value, err := encodeUser(u)
	return len(value), err
}
