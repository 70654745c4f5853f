package identity

import (
	"encoding/hex"
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAUserIsItselfWhileItListsItsCredential, and another user who lists it later is not.
func TestAUserIsItselfWhileItListsItsCredential(t *testing.T) {
	const hash = "$2a$04$abcdefghijklmnopqrstuuMGiW0ZSBNRIpXUz1wSkXyk0rPhzqnfa"
	const public = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
	var sum [32]byte
	listed := tokenPrefix + hex.EncodeToString(sum[:])
	for name, c := range map[string]struct {
		by   *Credential
		user User
		keep string // the user is anonymous
	}{
		"password":                  {ByPassword([]byte(hash)), User{Passwords: []string{hash}}, ""},
		"token":                     {ByToken(sum), User{Tokens: []string{listed}}, ""},
		"nkey":                      {ByKey(public), User{NKeys: []string{public}}, ""},
		"certificate":               {ByCertificate([]string{"dns:a"}), User{Certificates: []string{"dns:a"}}, ""},
		"certificate by other name": {ByCertificate([]string{"email:a", "dns:a"}), User{Certificates: []string{"dns:a"}}, ""},
		"nothing":                   {ByNothing(), User{}, "ann"},
	} {
		t.Run(name, func(t *testing.T) {
			still := func(d Document) *Identity {
				t.Helper()
				table, err := d.Table()
				testutil.Must(t, err)
				return table.Still("ann", c.by)
			}
			has := c.user
			has.Name = "ann"
			if is := still(Document{Users: []User{has}, Anonymous: c.keep}); is == nil || is.Name != "ann" {
				t.Errorf("while it lists the credential, it is %v", is)
			}
			lacks, other := User{Name: "ann"}, c.user
			other.Name = "bob"
			d := Document{Users: []User{lacks, other}}
			if c.keep != "" {
				d.Anonymous = "bob"
			}
			if is := still(d); is != nil {
				t.Error("it is itself by the credential of another user")
			}
			if still(Document{Users: []User{lacks}}) != nil || still(Document{}) != nil {
				t.Error("it is itself without the credential, or without the user")
			}
		})
	}
}
