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

// decide returns the users that Secrets and the defaults make. before are users with verifiers that
// may hold still, by name. It changes h and left.
func decide(secrets []corev1.Secret, defaults *identity.Permissions, anonymous string, before map[string]*identity.User, h *hashes, left *turns) Decision {
	d := Decision{Document: identity.Document{Default: defaults, Anonymous: anonymous}}
	refuse := func(c *candidate, err error) { d.Mistakes = append(d.Mistakes, Mistake{c.secret, err.Error()}) }
	if _, mistakes := (&identity.Document{Default: defaults}).Valid(); len(mistakes) > 0 {
		d.Trouble, d.Keep = "spec.auth.users."+mistakes[0].Error(), true
	}
	candidates := d.candidates(secrets, anonymous, refuse)
	waiting := hash(candidates, before, h, left)

	// The first of two with one credential is right, so they are judged in the order of their ages.
	doc := identity.Document{Default: defaults}
	bySecret := map[string]*candidate{}
	for _, c := range candidates {
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
	if anonymous != "" && table.User(anonymous) == nil {
		d.Document.Anonymous = ""
		if !slices.ContainsFunc(candidates, func(c *candidate) bool { return waiting[c] && c.user.Name == anonymous }) {
			d.Trouble = cmp.Or(d.Trouble, fmt.Sprintf("spec.auth.users.anonymous: there is no user %q", anonymous))
		}
	}
	order := map[string]int{}
	for i := range secrets {
		order[secrets[i].Name] = i
	}
	slices.SortStableFunc(d.Mistakes, func(a, b Mistake) int { return order[a.Secret] - order[b.Secret] })
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

// candidates sorts the Secrets by their ages, and returns those that are right by themselves.
func (d *Decision) candidates(secrets []corev1.Secret, anonymous string, refuse func(*candidate, error)) (all []*candidate) {
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
		case !c.authenticates() && c.user.Name != anonymous:
			err = errors.New("it has no password, passwordHash, token, nkey or certificate: add one")
		case len(all) == identity.MaxUsers:
			err = fmt.Errorf("there are more than %d users: delete some", identity.MaxUsers)
		}
		if err != nil {
			refuse(&c, err)
			continue
		}
		named[c.user.Name] = c.secret
		all = append(all, &c)
	}
	return all
}

// hash sets the verifiers of passwords. Those in etcd that were made from the Secret as it is are
// right. Users without any come first: they can't connect. Then come changed Secrets, and at last
// those whose verifiers this process knows nothing of. waiting are those who had no turn, and have
// the verifiers of before.
func hash(candidates []*candidate, before map[string]*identity.User, h *hashes, left *turns) (waiting map[*candidate]bool) {
	waiting = map[*candidate]bool{}
	used := map[string]bool{}
	const fresh, changed, unknown = 0, 1, 2
	for turn := range unknown + 1 {
		for _, c := range candidates {
			was, its := before[c.user.Name], unknown
			switch {
			case was == nil || len(was.Passwords) == 0:
				its = fresh
			case h.hold(c, was.Passwords):
				c.user.Passwords = was.Passwords
				continue
			case h.changed(c):
				its = changed
			}
			if its != turn {
				continue
			}
			var old []string
			if was != nil {
				old = slices.DeleteFunc(slices.Clone(was.Passwords), func(hash string) bool { return slices.Contains(c.hashes, hash) })
			}
			c.user.Passwords = slices.Clone(c.hashes)
			for _, password := range c.passwords {
				hash, err := h.of(password, old, left)
				if err != nil || hash == "" {
					waiting[c] = true
					break
				}
				c.user.Passwords = append(c.user.Passwords, hash)
			}
			if waiting[c] {
				c.user.Passwords = slices.Clone(c.hashes)
				if was != nil {
					c.user.Passwords = was.Passwords
				}
			}
			for _, hash := range c.user.Passwords {
				used[hash] = true
			}
		}
	}
	for _, u := range before { // a set that is not written yet may come back
		for _, hash := range u.Passwords {
			used[hash] = true
		}
	}
	h.keep(used)
	h.note(candidates, waiting)
	return waiting
}
