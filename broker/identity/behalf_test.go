package identity

import (
	"testing"
	"time"
)

// TestOnBehalf: rights are those of the present users. Without users everything is allowed, and for
// nobody in particular.
func TestOnBehalf(t *testing.T) {
	tableOf := func(users ...User) *Table {
		table, err := (&Document{Users: users}).Table()
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	eve := User{Name: "eve", Permissions: &Permissions{
		Publish:   &Subjects{Allow: []string{"out.>", "$JS.API.CONSUMER.CREATE.mine.>", "$JS.API.CONSUMER.DURABLE.CREATE.old.*"}, Deny: []string{"out.secret.*"}},
		Subscribe: &Subjects{Allow: []string{"_INBOX.>", "in.>"}},
	}}
	late := eve
	late.Name, late.Expires = "late", time.Now().Add(-time.Second)
	table := tableOf(eve, late)
	b := NewBehalf(func() *Table { return table })
	told := 0
	stop := b.Watch(func() { told++ })
	for _, test := range []struct {
		what string
		may  bool
		want bool
	}{
		{"eve publishes on out.a", b.MayPublish("eve", []byte("out.a")), true},
		{"eve publishes on out.secret.a", b.MayPublish("eve", []byte("out.secret.a")), false},
		{"eve has all of in.>", b.MaySubscribeAll("eve", "in.>"), true},
		{"eve has all", b.MaySubscribeAll("eve", ">"), false},
		{"late has all of in.>", b.MaySubscribeAll("late", "in.>"), false},
		{"nobody has all", b.MaySubscribeAll("", ">"), true},
		{"eve publishes on all of out.a.>", b.MayPublishAll("eve", "out.a.>"), true},
		{"eve publishes on all of out.>", b.MayPublishAll("eve", "out.>"), false},
		{"eve publishes on all of >", b.MayPublishAll("eve", ">"), false},
		{"eve publishes on all of $SYS.>", b.MayPublishAll("eve", "$SYS.>"), false},
		{"eve delivers to out.a", b.MayDeliver("eve", []byte("out.a")), true},
		{"eve delivers to an inbox", b.MayDeliver("eve", []byte("_INBOX.a")), true},
		{"eve delivers to what she may subscribe to", b.MayDeliver("eve", []byte("in.a")), false},
		{"eve consumes mine", b.MayConsume("eve", "mine"), true},
		{"eve consumes old", b.MayConsume("eve", "old"), true},
		{"eve consumes theirs", b.MayConsume("eve", "theirs"), false},
		{"late publishes on out.a", b.MayPublish("late", []byte("out.a")), false},
		{"bob publishes on out.a", b.MayPublish("bob", []byte("out.a")), false},
		{"bob consumes mine", b.MayConsume("bob", "mine"), false},
		{"nobody publishes on secret", b.MayPublish("", []byte("secret")), true},
		{"eve publishes on secret without users", (*Behalf)(nil).MayPublish("eve", []byte("secret")), true},
	} {
		if test.may != test.want {
			t.Errorf("%s: %v, want %v", test.what, test.may, test.want)
		}
	}
	table = tableOf()
	b.Changed()
	stop()
	b.Changed()
	if told != 1 || b.MayPublish("eve", []byte("out.a")) {
		t.Errorf("after eve is gone: told %d times, and she may publish: %v", told, b.MayPublish("eve", []byte("out.a")))
	}
	if allocs := testing.AllocsPerRun(100, func() { b.MayPublish("eve", []byte("out.a")) }); allocs > 0 {
		t.Errorf("a check allocates %v times", allocs)
	}
}
