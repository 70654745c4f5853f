package coordination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// RootUser is the user, and the role, that etcd requires before it asks for users at all. Whoever
// has a certificate of that name may do everything.
const RootUser = "root"

// clusterRole is the role of users that read and write the keys of their cluster, and nothing else.
const clusterRole = "cluster"

// Access is who may do what in etcd. A user of etcd is the common name of a client's certificate,
// and has no password.
type Access struct {
	Cluster []string // users that read and write the keys of the cluster
	Root    []string // users that may do everything, beside RootUser
}

// AccessState is what etcd has of an Access.
type AccessState struct {
	// Enabled reports that etcd refuses requests without a user, and those beyond its roles.
	Enabled bool
	// Lacks is what differs, for people; empty: nothing does.
	Lacks []string
}

// accessFound are the roles and users in etcd, of those that an Access names.
type accessFound struct {
	roles map[string][]*authpb.Permission // absent: there is no such role
	users map[string][]string             // their roles; absent: there is no such user
}

// accessChange is one request that changes roles or users. It may be repeated.
type accessChange struct {
	what  string // for people
	do    func(context.Context, clientv3.Auth) error
	there error // the answer if it was made already; nil: then there is no error
}

// Access reads what etcd has of an Access. It needs a client of RootUser once etcd asks for users.
func (c *Client) Access(ctx context.Context, want Access) (AccessState, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	enabled, err := c.accessEnabled(ctx)
	if err != nil {
		return AccessState{}, err
	}
	found, err := c.findAccess(ctx, want)
	if err != nil {
		return AccessState{}, err
	}
	state := AccessState{Enabled: enabled}
	for _, change := range want.changes(c.prefix, found) {
		state.Lacks = append(state.Lacks, change.what)
	}
	return state, nil
}

// GrantAccess makes roles and users as wanted. Users that want does not name stay as they are. It
// may be repeated, and changes nothing then. It does not enable anything.
func (c *Client) GrantAccess(ctx context.Context, want Access) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := c.findAccess(ctx, want)
	if err != nil {
		return err
	}
	for _, change := range want.changes(c.prefix, found) {
		if err := change.do(ctx, c.etcd.Auth); err != nil && (change.there == nil || !errors.Is(err, change.there)) {
			return fmt.Errorf("change the users of etcd (%s): %w", change.what, err)
		}
	}
	return nil
}

// EnableAccess has etcd refuse requests without a user, and those beyond its roles. Before that it
// reads roles and users, and returns an error if they are not as wanted.
func (c *Client) EnableAccess(ctx context.Context, want Access) error {
	state, err := c.Access(ctx, want)
	switch {
	case err != nil:
		return err
	case len(state.Lacks) > 0:
		return fmt.Errorf("enable the users of etcd: they lack %s (grant access first)", strings.Join(state.Lacks, ", "))
	case state.Enabled:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := c.etcd.AuthEnable(ctx); err != nil {
		return fmt.Errorf("enable the users of etcd: %w", err)
	}
	return nil
}

func (c *Client) accessEnabled(ctx context.Context) (bool, error) {
	status, err := c.etcd.AuthStatus(ctx)
	if err != nil {
		return false, fmt.Errorf("ask whether etcd has users: %w", err)
	}
	return status.Enabled, nil
}

func (c *Client) findAccess(ctx context.Context, want Access) (accessFound, error) {
	found := accessFound{roles: map[string][]*authpb.Permission{}, users: map[string][]string{}}
	for _, role := range []string{clusterRole, RootUser} {
		got, err := c.etcd.RoleGet(ctx, role)
		switch {
		case errors.Is(err, rpctypes.ErrRoleNotFound):
		case err != nil:
			return accessFound{}, fmt.Errorf("get role %s of etcd: %w", role, err)
		default:
			found.roles[role] = got.Perm
		}
	}
	for _, user := range slices.Concat(want.Cluster, want.Root, []string{RootUser}) {
		got, err := c.etcd.UserGet(ctx, user)
		switch {
		case errors.Is(err, rpctypes.ErrUserNotFound):
		case err != nil:
			return accessFound{}, fmt.Errorf("get user %s of etcd: %w", user, err)
		default:
			found.users[user] = got.Roles
		}
	}
	return found, nil
}

// changes returns what makes found as wanted, in an order in which no user loses what it needs
// before it has it otherwise. The role cluster is for the keys of prefix.
func (a Access) changes(prefix string, found accessFound) (changes []accessChange) {
	changes = addRole(changes, found, clusterRole)
	changes = addRole(changes, found, RootUser)
	end := clientv3.GetPrefixRangeEnd(prefix)
	var excess []accessChange
	granted := false
	for _, has := range found.roles[clusterRole] {
		switch {
		case string(has.GetKey()) != prefix || string(has.GetRangeEnd()) != end:
			excess = append(excess, revokeKeys(string(has.GetKey()), string(has.GetRangeEnd())))
		case has.GetPermType() == authpb.Permission_READWRITE:
			granted = true
		}
	}
	if !granted {
		changes = append(changes, accessChange{what: fmt.Sprintf("role %s for the keys of %s", clusterRole, prefix), do: func(ctx context.Context, auth clientv3.Auth) error {
			_, err := auth.RoleGrantPermission(ctx, clusterRole, prefix, end, clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		}})
	}
	each := func(users []string, role string) {
		for _, user := range users {
			has, exists := found.users[user]
			if !exists {
				changes = append(changes, addUser(user))
			}
			if !slices.Contains(has, role) {
				changes = append(changes, grantRole(user, role))
			}
			for _, other := range has {
				if other != role {
					excess = append(excess, revokeRole(user, other))
				}
			}
		}
	}
	each(append(slices.Clone(a.Root), RootUser), RootUser)
	each(a.Cluster, clusterRole)
	return append(changes, excess...)
}

func addRole(changes []accessChange, found accessFound, role string) []accessChange {
	if _, exists := found.roles[role]; exists {
		return changes
	}
	return append(changes, accessChange{what: "role " + role, there: rpctypes.ErrRoleAlreadyExist, do: func(ctx context.Context, auth clientv3.Auth) error {
		_, err := auth.RoleAdd(ctx, role)
		return err
	}})
}

func addUser(user string) accessChange {
	return accessChange{what: "user " + user, there: rpctypes.ErrUserAlreadyExist, do: func(ctx context.Context, auth clientv3.Auth) error {
		_, err := auth.UserAddWithOptions(ctx, user, "", &clientv3.UserAddOptions{NoPassword: true})
		return err
	}}
}

func grantRole(user, role string) accessChange {
	return accessChange{what: fmt.Sprintf("role %s of user %s", role, user), do: func(ctx context.Context, auth clientv3.Auth) error {
		_, err := auth.UserGrantRole(ctx, user, role)
		return err
	}}
}

func revokeRole(user, role string) accessChange {
	return accessChange{what: fmt.Sprintf("user %s without role %s", user, role), there: rpctypes.ErrRoleNotGranted, do: func(ctx context.Context, auth clientv3.Auth) error {
		_, err := auth.UserRevokeRole(ctx, user, role)
		return err
	}}
}

func revokeKeys(key, end string) accessChange {
	return accessChange{what: fmt.Sprintf("role %s without the keys from %q to %q", clusterRole, key, end), there: rpctypes.ErrPermissionNotGranted, do: func(ctx context.Context, auth clientv3.Auth) error {
		_, err := auth.RoleRevokePermission(ctx, clusterRole, key, end)
		return err
	}}
}
