package attribute

import (
	"fmt"
	"maps"
	"strings"

	"github.com/carillon-mq/carillon/broker/subject"
)

// Holder is the connection of a publisher that attributes are bound to: they go when it does. The
// zero Holder is none.
//
// Its process, and not the incarnation of its broker: a broker that has lost its lease registers in
// another incarnation, and its connections are the same.
type Holder struct {
	Broker     string `json:"broker"`
	Process    int64  `json:"process"`    // when the broker's process started, in ms since 1970
	Connection uint64 `json:"connection"` // its number in that process
}

// Change is a change of one subject's attributes.
type Change struct {
	Subject string
	Set     Set      // these get the values
	Delete  []string // these go
	Replace bool     // all others go
	// Holder is what the attributes are bound to from now on; nil: as it was before.
	Holder *Holder
	// KeepsUnbound has attributes that are bound to none stay so, whatever Holder says. It is for
	// new ones then, and for those of another connection.
	KeepsUnbound bool
	// If, if not nil, is the revision that the subject's attributes have to be at; 0: there are
	// none.
	If *int64
	// User is who changes them; empty: nobody in particular.
	User string
}

// Check returns an error if the change can't be made, whatever the subject has.
func (c *Change) Check() error {
	if err := CheckSubject(c.Subject); err != nil {
		return err
	}
	for _, name := range c.Delete {
		if !ValidName(name) {
			return badName(name)
		}
		if _, both := c.Set[name]; both {
			return fmt.Errorf("attribute %s is both set and deleted (do one of both)", name)
		}
	}
	if c.If != nil && *c.If < 0 {
		return fmt.Errorf("revision %d (write one that an answer had, or 0 if there are to be no attributes yet)", *c.If)
	}
	return c.Set.Check()
}

// Memory returns about how many bytes of memory the change takes: up to thirty times its JSON.
func (c *Change) Memory() int {
	const name, value, text = 100, 60, 20 // with their places in maps and lists
	n := len(c.Subject)
	for k, v := range c.Set {
		n += name + len(k) + len(v.text)
		for _, e := range v.list {
			n += value + len(e.text)
		}
	}
	for _, k := range c.Delete {
		n += text + len(k)
	}
	return n
}

// CheckSubject returns an error if a subject can't have attributes.
func CheckSubject(s string) error {
	switch raw := []byte(s); {
	case !subject.Valid(raw) || subject.HasWildcards(raw):
		return fmt.Errorf("%.100q is no subject that messages are published on (write one without wildcards, such as sensors.7)", s)
	case strings.HasPrefix(s, "$"), strings.HasPrefix(s, "_INBOX."):
		return fmt.Errorf("subject %.100s is one of the system or of answers, which have no attributes (use one of your own)", s)
	case len(s) > maxSubject:
		return fmt.Errorf("a subject of %d bytes (those with attributes have %d at most)", len(s), maxSubject)
	}
	return nil
}

// MovedError reports that a subject's attributes are at another revision than a change names.
type MovedError struct {
	Subject  string
	Revision int64 // 0: there are none
}

func (e *MovedError) Error() string {
	if e.Revision == 0 {
		return fmt.Sprintf("subject %s has no attributes (read them again, and repeat the change if it is still right)", e.Subject)
	}
	return fmt.Sprintf("the attributes of subject %s are at revision %d (read them again, and repeat the change if it is still right)", e.Subject, e.Revision)
}

// Apply returns what a change makes of the attributes of its subject; the zero Entry: there are
// none, before or afterwards. It returns an error if the result exceeds the bounds, or a
// *MovedError. The revision of the result is that of before.
func (c *Change) Apply(before Entry) (after Entry, err error) {
	if c.If != nil && *c.If != before.Revision {
		return Entry{}, &MovedError{c.Subject, before.Revision}
	}
	attributes := Set{}
	if !c.Replace && before.Text != "" {
		if attributes, err = SetFromJSON([]byte(before.Text)); err != nil {
			return Entry{}, fmt.Errorf("the attributes of subject %s in etcd: %w (replace all of them)", c.Subject, err)
		}
	}
	maps.Copy(attributes, c.Set)
	for _, name := range c.Delete {
		delete(attributes, name)
	}
	if len(attributes) == 0 {
		return Entry{}, nil
	}
	if err := attributes.Check(); err != nil {
		return Entry{}, fmt.Errorf("subject %s: %w", c.Subject, err)
	}
	after = Entry{Subject: c.Subject, Revision: before.Revision, Text: string(attributes.AppendJSON(nil)), Holder: before.Holder, User: c.User}
	unbound := before.Text != "" && before.Holder == (Holder{})
	if c.Holder != nil && !(c.KeepsUnbound && unbound) {
		after.Holder = *c.Holder
	}
	return after, nil
}
