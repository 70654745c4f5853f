package coordination

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/internal/testutil"
)

var testAccess = Access{Cluster: []string{"main-broker", "carillon-operator"}, Root: []string{"main-coordinator"}}

// TestAccessIsMadeAsWanted: whatever part of roles and users is there, or more than that, one pass
// makes it as wanted, and the next one finds nothing to do. Other users and roles stay.
func TestAccessIsMadeAsWanted(t *testing.T) {
	etcd := startEtcd(t)
	client := etcd.open()
	ctx, auth := t.Context(), client.etcd.Auth
	_, err := auth.RoleAdd(ctx, "mine")
	testutil.Must(t, err)
	_, err = auth.UserAddWithOptions(ctx, "me", "", &clientv3.UserAddOptions{NoPassword: true})
	testutil.Must(t, err)
	_, err = auth.UserGrantRole(ctx, "me", "mine")
	testutil.Must(t, err)
	spoils := map[string]func() error{
		"nothing": func() error { return nil },
		"a user":  func() error { _, err := auth.UserDelete(ctx, "main-broker"); return err },
		"root":    func() error { _, err := auth.UserDelete(ctx, RootUser); return err },
		"a role":  func() error { _, err := auth.RoleDelete(ctx, clusterRole); return err },
		"both roles": func() error {
			_, err := auth.RoleDelete(ctx, RootUser)
			_, also := auth.RoleDelete(ctx, clusterRole)
			return errors.Join(err, also)
		},
		"a grant": func() error { _, err := auth.UserRevokeRole(ctx, "main-coordinator", RootUser); return err },
		"more roles": func() error {
			_, err := auth.UserGrantRole(ctx, "main-broker", "mine")
			_, also := auth.UserGrantRole(ctx, "carillon-operator", RootUser)
			return errors.Join(err, also)
		},
		"more keys": func() error {
			_, err := auth.RoleGrantPermission(ctx, clusterRole, "/", "", clientv3.PermissionType(clientv3.PermRead))
			_, also := auth.RoleGrantPermission(ctx, clusterRole, "/carillon/", "/carillon0", clientv3.PermissionType(clientv3.PermReadWrite))
			return errors.Join(err, also)
		},
		"fewer rights": func() error {
			_, err := auth.RoleGrantPermission(ctx, clusterRole, client.prefix, clientv3.GetPrefixRangeEnd(client.prefix), clientv3.PermissionType(clientv3.PermWrite))
			return err
		},
	}
	if state, err := client.Access(ctx, testAccess); err != nil || state.Enabled || len(state.Lacks) == 0 {
		t.Fatalf("a new etcd has %+v, %v", state, err)
	}
	if err := client.EnableAccess(ctx, testAccess); err == nil || !strings.Contains(err.Error(), "they lack role cluster") {
		t.Fatalf("etcd asks for users that it does not have: %v", err)
	}
	testutil.Must(t, client.GrantAccess(ctx, testAccess))
	for _, what := range slices.Sorted(maps.Keys(spoils)) {
		testutil.Must(t, spoils[what]())
		state, err := client.Access(ctx, testAccess)
		testutil.Must(t, err)
		if spoilt := what != "nothing"; spoilt != (len(state.Lacks) > 0) {
			t.Errorf("%s: %v is to be changed", what, state.Lacks)
		}
		testutil.Must(t, client.GrantAccess(ctx, testAccess))
		before, err := auth.AuthStatus(ctx)
		testutil.Must(t, err)
		testutil.Must(t, client.GrantAccess(ctx, testAccess))
		after, err := auth.AuthStatus(ctx)
		testutil.Must(t, err)
		if state, err := client.Access(ctx, testAccess); err != nil || len(state.Lacks) > 0 || before.AuthRevision != after.AuthRevision {
			t.Errorf("%s: it lacks %v still (%v), or what is as wanted was changed", what, state.Lacks, err)
		}
	}
	if me, err := auth.UserGet(ctx, "me"); err != nil || !slices.Equal(me.Roles, []string{"mine"}) {
		t.Errorf("another user has %v, %v", me, err)
	}
	role, err := auth.RoleGet(ctx, clusterRole)
	testutil.Must(t, err)
	if len(role.Perm) != 1 || role.Perm[0].GetPermType() != authpb.Permission_READWRITE || string(role.Perm[0].GetKey()) != "/carillon/default/main/" || string(role.Perm[0].GetRangeEnd()) != "/carillon/default/main0" {
		t.Errorf("the role is for %v", role.Perm)
	}
	for user, want := range map[string]string{"main-broker": "[cluster]", "carillon-operator": "[cluster]", "main-coordinator": "[root]", "root": "[root]"} {
		if has, err := auth.UserGet(ctx, user); err != nil || fmt.Sprint(has.Roles) != want {
			t.Errorf("user %s has %v, %v; want %s", user, has, err, want)
		}
	}
}

// TestAChangeThatWasMadeMeanwhileIsNoError: two operators may make the same one.
func TestAChangeThatWasMadeMeanwhileIsNoError(t *testing.T) {
	etcd := startEtcd(t)
	client := etcd.open()
	found, err := client.findAccess(t.Context(), testAccess)
	testutil.Must(t, err)
	for range 2 {
		for _, change := range testAccess.changes(client.prefix, found) {
			if err := change.do(t.Context(), client.etcd.Auth); err != nil && (change.there == nil || !errors.Is(err, change.there)) {
				t.Errorf("%s: %v", change.what, err)
			}
		}
	}
}

// TestARefusalSaysWhatToDo: which user it is, and where users are described. Other errors stay.
func TestARefusalSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	testca.New(t).Issue(t, dir)
	tls, err := env.LoadTLS(dir)
	testutil.Must(t, err)
	for _, c := range []struct {
		tls  *env.TLS
		err  error
		user string
		says string
	}{
		{tls, rpctypes.ErrGRPCPermissionDenied, "node", `user "node" of etcd`},
		{tls, rpctypes.ErrGRPCUserEmpty, "node", `user "node" of etcd`},
		{nil, rpctypes.ErrGRPCUserEmpty, "", "no certificate with a common name"},
	} {
		err := refusal(c.tls, c.err)
		refused, _ := errors.AsType[*RefusedError](err)
		if refused == nil || refused.User != c.user || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "docs/operations.md, Users of etcd") {
			t.Errorf("of %v a person reads %q", c.err, err)
		}
		if !errors.Is(err, rpctypes.Error(c.err)) || refusal(c.tls, err) != err {
			t.Errorf("%v lost its cause, or was told twice", err)
		}
		if through := clientv3.ContextError(context.Background(), err); through != err {
			t.Errorf("clientv3 makes %q of it", through)
		}
	}
	for _, other := range []error{nil, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCUserNotFound, status.Error(codes.Unavailable, "away"), context.Canceled} {
		if err := refusal(tls, other); err != other {
			t.Errorf("%v became %v", other, err)
		}
	}
}
