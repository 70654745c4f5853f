package identity

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAnEmptyListStaysOne: an empty list of patterns or roles allows nothing, and no list allows
// everything. A document that a program writes must not lose the difference.
func TestAnEmptyListStaysOne(t *testing.T) {
	written := Document{
		Users:   []User{{Name: "none", Roles: []Role{}, Permissions: &Permissions{Publish: &Subjects{Allow: []string{}}}}, {Name: "any"}},
		Default: &Permissions{Subscribe: &Subjects{Allow: []string{}}},
	}
	text, err := json.Marshal(&written)
	testutil.Must(t, err)
	doc, err := Parse(text)
	testutil.Must(t, err)
	table, err := doc.Table()
	testutil.Must(t, err)
	none, other := table.User("none"), table.User("any")
	if none.Roles != 0 || none.MayPublish([]byte("a")) || !none.MaySubscribe([]byte("a"), nil) {
		t.Errorf("with empty lists: roles %q, may publish %v", none.Roles, none.MayPublish([]byte("a")))
	}
	if other.Roles != DefaultRoles || !other.MayPublish([]byte("a")) || other.MaySubscribe([]byte("a"), nil) {
		t.Errorf("without lists: roles %q, may publish %v, may subscribe %v", other.Roles, other.MayPublish([]byte("a")), other.MaySubscribe([]byte("a"), nil))
	}
}

// TestAWrongUserTakesNoOtherAway: Valid leaves out the wrong users with all their credentials, and
// Table takes none.
func TestAWrongUserTakesNoOtherAway(t *testing.T) {
	sum := tokenPrefix + strings.Repeat("0", 64)
	d := Document{Users: []User{
		{Name: "ann", Tokens: []string{sum}},
		{Name: "bob", Certificates: []string{"dns:bob"}, Roles: []Role{"king"}},
		{Name: "eve", Certificates: []string{"dns:eve"}, Tokens: []string{sum}},
		{Name: "carl", Certificates: []string{"dns:bob", "dns:eve"}}, // neither bob nor eve has them
		{Name: "ann", Certificates: []string{"dns:ann"}},
	}, Anonymous: "bob"}
	table, mistakes := d.Valid()
	var wrong []string
	for _, err := range mistakes {
		var of *UserError
		if errors.As(err, &of) {
			wrong = append(wrong, of.User)
		}
		if strings.Contains(err.Error(), sum) {
			t.Errorf("the mistake shows a verifier: %v", err)
		}
	}
	if !slices.Equal(wrong, []string{"bob", "eve", "ann"}) || len(mistakes) != 4 {
		t.Errorf("the mistakes are %v", mistakes)
	}
	if table.User("bob") != nil || table.User("eve") != nil || table.Anonymous() != nil {
		t.Error("a wrong user is there")
	}
	if is := table.OfCertificate("dns:eve"); is == nil || is.Name != "carl" || table.OfCertificate("dns:ann") != nil {
		t.Errorf("the certificate of a wrong user is that of %v", is)
	}
	if is := table.OfToken([32]byte{}); is == nil || is.Name != "ann" {
		t.Errorf("the token is that of %v", is)
	}
	if _, err := d.Table(); err == nil {
		t.Error("a wrong document is taken")
	}
}

// TestWrongDefaultPermissionsAllowNothing: a mistake in what users without permissions have never
// gives them more.
func TestWrongDefaultPermissionsAllowNothing(t *testing.T) {
	d := Document{
		Users:   []User{{Name: "default"}, {Name: "own", Permissions: &Permissions{}}},
		Default: &Permissions{Publish: &Subjects{Deny: []string{"a..b"}}},
	}
	table, mistakes := d.Valid()
	if len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), "defaultPermissions") {
		t.Errorf("the mistakes are %v", mistakes)
	}
	if is := table.User("default"); is == nil || is.MayPublish([]byte("a")) || is.MaySubscribe([]byte("a"), nil) {
		t.Error("a user without permissions may do something")
	}
	if is := table.User("own"); is == nil || !is.MayPublish([]byte("a")) {
		t.Error("a user with permissions of its own lost them")
	}
}
