package users

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
)

// Mistake is what is wrong with a Secret. It shows no value of it.
type Mistake struct{ Secret, Why string }

// Decision is which users there are.
type Decision struct {
	Document identity.Document // sorted by name
	Mistakes []Mistake         // in the order of the Secrets' ages
	// Trouble is a mistake in the Broker's manifest. If Keep is set, the set in etcd stays.
	Trouble string
	Keep    bool
	// Pending is how many users wait for their turn to have passwords hashed.
	Pending int

	size int // of the users in etcd, in bytes; those that were refused at last count
}

// gathered is what a Broker's manifest and the Secrets of its users say.
type gathered struct {
	defaults   *identity.Permissions
	anonymous  string
	candidates []*candidate // in the order of their ages
	mistakes   []Mistake
	trouble    string
	order      map[string]int // of the Secrets, by name
}

// gather reads the Secrets. It sorts them by their ages.
func gather(secrets []corev1.Secret, defaults *identity.Permissions, anonymous string) *gathered {
	g := &gathered{defaults: defaults, anonymous: anonymous, order: map[string]int{}}
	if _, mistakes := (&identity.Document{Default: defaults}).Valid(); len(mistakes) > 0 {
		g.trouble = "spec.auth.users." + mistakes[0].Error()
	}
	g.read(secrets)
	for i := range secrets {
		g.order[secrets[i].Name] = i
	}
	return g
}

// decide returns which users there are as of a stage of a pass. before are users with verifiers
// that may hold still, by name. It changes h and left.
func (g *gathered) decide(before map[string]*identity.User, h *hashes, left *turns, until stage) Decision {
	d := Decision{
		Document: identity.Document{Default: g.defaults, Anonymous: g.anonymous},
		Mistakes: slices.Clone(g.mistakes), Trouble: g.trouble, Keep: g.trouble != "",
	}
	refuse := func(c *candidate, err error) { d.Mistakes = append(d.Mistakes, Mistake{c.secret, err.Error()}) }
	waiting := hash(g.candidates, before, h, left, until)

	// The first of two with one credential is right, so they are judged in the order of their ages.
	doc := identity.Document{Default: g.defaults}
	bySecret := map[string]*candidate{}
	for _, c := range g.candidates {
		if waiting[c] {
			d.Pending++
			if u := &c.user; before[u.Name] == nil && len(u.Passwords)+len(u.Tokens)+len(u.NKeys)+len(u.Certificates) == 0 {
				continue
			}
		}
		n, err := coordination.UserSize(&c.user)
		if err == nil && d.size+n > identity.MaxDocument {
			err = fmt.Errorf("the users together have more than %d bytes: write fewer, or fewer patterns", identity.MaxDocument)
		}
		if err != nil {
			refuse(c, err)
			continue
		}
		d.size += n
		doc.Users = append(doc.Users, c.user)
		bySecret[c.user.Name] = c
	}
	table, mistakes := doc.Valid()
	for _, err := range mistakes {
		var wrong *identity.UserError
		if errors.As(err, &wrong) {
			refuse(bySecret[wrong.User], wrong.Err)
			delete(bySecret, wrong.User)
		}
	}
	d.Document.Users = slices.DeleteFunc(doc.Users, func(u identity.User) bool { return bySecret[u.Name] == nil })
	slices.SortFunc(d.Document.Users, func(a, b identity.User) int { return strings.Compare(a.Name, b.Name) })
	if g.anonymous != "" && table.User(g.anonymous) == nil {
		d.Document.Anonymous = ""
		if !slices.ContainsFunc(g.candidates, func(c *candidate) bool { return waiting[c] && c.user.Name == g.anonymous }) {
			d.Trouble = cmp.Or(d.Trouble, fmt.Sprintf("spec.auth.users.anonymous: there is no user %q", g.anonymous))
		}
	}
	slices.SortStableFunc(d.Mistakes, func(a, b Mistake) int { return g.order[a.Secret] - g.order[b.Secret] })
	return d
}

// withOwn adds the operator's own user to a decision. If all together were wrong by that, it is
// left out: the users of Secrets go first.
func (d *Decision) withOwn(own *identity.User) {
	if own == nil || len(d.Document.Users) >= identity.MaxUsers {
		return
	}
	if n, err := coordination.UserSize(own); err != nil || d.size+n > identity.MaxDocument {
		return
	}
	at, _ := slices.BinarySearchFunc(d.Document.Users, own.Name, func(u identity.User, name string) int { return strings.Compare(u.Name, name) })
	all := d.Document
	all.Users = slices.Insert(slices.Clone(all.Users), at, *own)
	if _, mistakes := all.Valid(); len(mistakes) == 0 {
		d.Document = all
	}
}

// read reads the Secrets, in the order of their ages. Candidates are those that are right by
// themselves.
func (g *gathered) read(secrets []corev1.Secret) {
	slices.SortFunc(secrets, func(a, b corev1.Secret) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	named := map[string]string{} // user -> Secret
	for i := range secrets {
		c, err := read(&secrets[i])
		switch older := named[c.user.Name]; {
		case err != nil:
		case c.user.Name == OperatorName:
			err = fmt.Errorf("user %s is the operator's own: choose another username", OperatorName)
		case older != "":
			err = fmt.Errorf("its user has the name of that of Secret %s, which is older: choose another username", older)
		case !c.authenticates() && c.user.Name != g.anonymous:
			err = errors.New("it has no password, passwordHash, token, nkey or certificate: add one")
		case len(g.candidates) == identity.MaxUsers:
			err = fmt.Errorf("there are more than %d users: delete some", identity.MaxUsers)
		}
		if err != nil {
			g.mistakes = append(g.mistakes, Mistake{c.secret, err.Error()})
			continue
		}
		named[c.user.Name] = c.secret
		g.candidates = append(g.candidates, &c)
	}
}
