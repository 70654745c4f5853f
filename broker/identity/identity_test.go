package identity

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func compiled(t testing.TB, p Permissions) *Identity {
	t.Helper()
	r, err := p.compile()
	testutil.Must(t, err)
	return &Identity{Name: "ann", Roles: DefaultRoles, rights: r}
}

// pattern draws patterns over two tokens, of up to four tokens.
func pattern(t *rapid.T, name string) string {
	n := rapid.IntRange(1, 4).Draw(t, name)
	tokens := make([]string, n)
	for i := range tokens {
		choices := []string{"a", "b", "*"}
		if i == n-1 {
			choices = append(choices, ">")
		}
		tokens[i] = rapid.SampledFrom(choices).Draw(t, name)
	}
	return strings.Join(tokens, ".")
}

// literals are all subjects of up to six tokens a, b and c. c stands for the other ones.
func literals() (all []string) {
	last := []string{""}
	for range 6 {
		var next []string
		for _, prefix := range last {
			for _, token := range []string{"a", "b", "c"} {
				next = append(next, strings.TrimPrefix(prefix+"."+token, "."))
			}
		}
		all, last = append(all, next...), next
	}
	return all
}

// TestASetCoversWhatItsPatternsMatch compares the set with the patterns one by one: of a subject,
// with subject.Matches; of a pattern, with all subjects that it matches.
func TestASetCoversWhatItsPatternsMatch(t *testing.T) {
	universe := literals()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return pattern(t, "of the set") }), 0, 4).Draw(t, "set")
		set := newPatterns(list)
		matches := func(p, s string) bool { return subject.Matches([]byte(p), []byte(s)) }
		s := rapid.SampledFrom(universe).Draw(t, "subject")
		want := false
		for _, p := range list {
			want = want || matches(p, s)
		}
		if got := set.matches([]byte(s)); got != want {
			t.Errorf("%v matches the subject %s: %v", list, s, got)
		}
		asked := pattern(t, "asked")
		want, overlap := false, false
		for _, p := range list {
			all := true
			for _, s := range universe {
				if matches(asked, s) {
					all = all && matches(p, s)
					overlap = overlap || matches(p, s)
				}
			}
			want = want || all
		}
		if got := set.covers([]byte(asked)); got != want {
			t.Errorf("%v covers the pattern %s: %v", list, asked, got)
		}
		if got := set.overlaps(asked); got != overlap {
			t.Errorf("%v overlaps %s: %v", list, asked, got)
		}
	})
}

// TestRightsToSeePatternsAgreeWithThoseToSubjects compares MaySeeAll and MaySeeSome with MaySee of
// all subjects that a pattern matches.
func TestRightsToSeePatternsAgreeWithThoseToSubjects(t *testing.T) {
	universe := literals()
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.Custom(func(t *rapid.T) string { return pattern(t, "of a list") })
		p := Permissions{Subscribe: &Subjects{Deny: rapid.SliceOfN(some, 0, 3).Draw(t, "deny")}}
		if rapid.Bool().Draw(t, "allows") {
			p.Subscribe.Allow = append([]string{"c workers"}, rapid.SliceOfN(some, 0, 3).Draw(t, "allow")...)
		}
		r, err := p.compile()
		if err != nil {
			t.Fatal(err)
		}
		is := &Identity{Roles: DefaultRoles, rights: r}
		asked := pattern(t, "asked")
		one, each := false, true
		for _, s := range universe {
			if subject.Matches([]byte(asked), []byte(s)) {
				may := is.MaySee([]byte(s))
				if may != (is.MaySubscribe([]byte(s), nil) && is.MayReceive([]byte(s), "")) {
					t.Fatalf("%+v: may see %s: %v", p.Subscribe, s, may)
				}
				one, each = one || may, each && may
			}
		}
		if is.MaySeeAll(asked) && !each {
			t.Errorf("%+v: not all of %s may be seen", p.Subscribe, asked)
		}
		if !is.MaySeeSome(asked) && one {
			t.Errorf("%+v: some of %s may be seen", p.Subscribe, asked)
		}
	})
}

// TestWhoSeesWhat: of the subjects of messages, in which * and > are tokens as others are.
func TestWhoSeesWhat(t *testing.T) {
	is := compiled(t, Permissions{Subscribe: &Subjects{Allow: []string{"a.>", "b.c", "d.* workers"}, Deny: []string{"a.secret.*"}}})
	for on, want := range map[string]bool{"a.a": true, "a.secret": true, "a.secret.b": false, "a.secret.>": false, "b.c": true, "b.*": false, "d.e": false, "$SYS.a": false} {
		if is.MaySee([]byte(on)) != want {
			t.Errorf("a message on %s may be seen: %v", on, !want)
		}
	}
	for of, want := range map[string][2]bool{ // all, some
		"a.>": {false, true}, "a.*": {true, true}, "a.secret.>": {false, true}, "a.secret.*": {false, false}, "a.secret.b": {false, false}, "b.*": {false, true}, "b.c": {true, true}, "d.e": {false, false}, ">": {false, true},
	} {
		if got := [2]bool{is.MaySeeAll(of), is.MaySeeSome(of)}; got != want {
			t.Errorf("all and some of %s may be seen: %v", of, got)
		}
	}
	all := &Identity{Name: "ann", Roles: DefaultRoles}
	if all.MaySee([]byte("$CARILLON.API.x")) || !all.MaySee([]byte("x")) || !all.MaySeeAll(">") || !all.MaySeeSome("x") {
		t.Error("the rights of a user without permissions are wrong")
	}
}

func TestADenyListWins(t *testing.T) {
	is := compiled(t, Permissions{
		Publish:   &Subjects{Allow: []string{"a.>"}, Deny: []string{"a.b"}},
		Subscribe: &Subjects{Deny: []string{"c.*.d"}},
	})
	for to, want := range map[string]bool{"a.a": true, "a.b": false, "a.b.c": true, "b": false} {
		if is.MayPublish([]byte(to)) != want {
			t.Errorf("may publish on %s: %v", to, !want)
		}
	}
	for of, want := range map[string]bool{"c.x.d": false, "c.*.d": false, "c.>": true, ">": true, "x": true} {
		if is.MaySubscribe([]byte(of), nil) != want {
			t.Errorf("may subscribe to %s: %v", of, !want)
		}
	}
	for of, want := range map[string]bool{"c.>": true, "c.x.*": true, "c.x": false, "a": false} {
		if is.Filters(of, "") != want {
			t.Errorf("%s is filtered: %v", of, !want)
		}
	}
	for to, want := range map[string]bool{"a.*": true, "a.>": true, "a.>.b": true, "a.b.*": true, "*.b": false, ">": false} {
		if is.MayPublish([]byte(to)) != want {
			t.Errorf("may publish on %s, whose tokens are no wildcards: %v", to, !want)
		}
	}
	if is.MayReceive([]byte("c.>.d"), "") {
		t.Error("a message on c.>.d, which c.*.d matches, is delivered")
	}
	if is.MayReceive([]byte("c.x.d"), "") || !is.MayReceive([]byte("c.x.e"), "") {
		t.Error("the filter is wrong")
	}
}

// TestEqualRightsHaveEqualDigests: whoever has them, and only then.
func TestEqualRightsHaveEqualDigests(t *testing.T) {
	table, err := (&Document{Users: []User{
		{Name: "all"}, {Name: "too"}, {Name: "operator", Roles: []Role{Operator}},
		{Name: "some", Permissions: &Permissions{Subscribe: &Subjects{Allow: []string{"a.>"}}}},
		{Name: "same", Permissions: &Permissions{Subscribe: &Subjects{Allow: []string{"a.>"}}, Publish: &Subjects{}}},
		{Name: "less", Permissions: &Permissions{Subscribe: &Subjects{Allow: []string{"a.>"}, Deny: []string{"a.b"}}}},
	}}).Table()
	testutil.Must(t, err)
	digests := map[uint64]string{(*Identity)(nil).SubscribeDigest(): "nobody"}
	for _, u := range []struct{ name, as string }{{"all", ""}, {"too", "all"}, {"operator", ""}, {"some", ""}, {"same", "some"}, {"less", ""}} {
		is := table.User(u.name).Identity
		if as := digests[is.SubscribeDigest()]; as != u.as {
			t.Errorf("%s has the digest of %q, want %q", u.name, as, u.as)
		}
		digests[is.SubscribeDigest()] = u.name
		if u.as != "" {
			digests[is.SubscribeDigest()] = u.as
		}
		if digests[is.Revoked().SubscribeDigest()] != "" {
			t.Errorf("without rights, %s has the digest of somebody", u.name)
		}
	}
}

func TestRolesGuardCarillonsRequests(t *testing.T) {
	for _, c := range []struct {
		roles []Role
		may   map[string]bool
	}{
		{nil, map[string]bool{
			"$CARILLON.API.TOPIC.INFO.t": true, "$CARILLON.API.RECORDS.t.0": true, "$CARILLON.API.QUERY.OPEN": true, "$CARILLON.API.VIEW.INFO": true, "$CARILLON.API.VIEW.CREATE": false, "$CARILLON.API.TOPIC.CREATE.t": false,
			"$CARILLON.API.BROKER.DRAIN.b": false, "$SYS.REQ.SERVER.PING": false, "$SYS.REQ.USER.INFO": true, "$JS.API.INFO": true, "x": true,
		}},
		{[]Role{}, map[string]bool{"$CARILLON.API.TOPIC.INFO.t": true, "$CARILLON.API.RECORDS.t.0": false, "x": true}},
		{[]Role{Publisher}, map[string]bool{"$CARILLON.API.RECORDS.t.0": false, "$CARILLON.API.QUERY.OPEN": false, "$CARILLON.ASK.b": false}},
		{[]Role{Operator}, map[string]bool{"$CARILLON.API.BROKER.DRAIN.b": true, "$SYS.REQ.SERVER.PING": true}},
	} {
		roles, err := parseRoles(c.roles)
		testutil.Must(t, err)
		is := &Identity{Roles: roles}
		for to, want := range c.may {
			if is.MayPublish([]byte(to)) != want {
				t.Errorf("with %v, %s: %v", c.roles, to, !want)
			}
		}
		operator := roles&isOperator != 0
		if is.MaySubscribe([]byte("$SYS.>"), nil) != operator || is.Filters(">", "") == operator || is.MayReceive([]byte("$SYS.x"), "") != operator {
			t.Errorf("with %v, events of servers are guarded otherwise", c.roles)
		}
	}
}

func TestWhoIsRevokedMayDoNothing(t *testing.T) {
	is := Single("ann").Revoked()
	if is.MayPublish([]byte("a")) || is.MaySubscribe([]byte("a"), nil) || is.MayReceive([]byte("a"), "") || is.Name != "ann" {
		t.Error("it may")
	}
}

// TestARightIsCheckedWithoutAllocation is invariant U3.
func TestARightIsCheckedWithoutAllocation(t *testing.T) {
	is := compiled(t, Permissions{
		Publish:   &Subjects{Allow: []string{"orders.*.new", "a.>"}, Deny: []string{"a.b"}},
		Subscribe: &Subjects{Deny: []string{"secret.>", "x", "orders.> others"}},
	})
	to, of := []byte("orders.eu.new"), []byte("orders.eu.new")
	if n := testing.AllocsPerRun(100, func() {
		if !is.MayPublish(to) || !is.MayReceive(of, "") || !is.MayReceive(of, "workers") {
			t.Error("it may not")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMayPublish(b *testing.B) {
	is := compiled(b, Permissions{Publish: &Subjects{Allow: []string{"orders.*.new", "a.>"}, Deny: []string{"a.b"}}})
	to := []byte("orders.eu.new")
	for b.Loop() {
		is.MayPublish(to)
	}
}

const hash = "$2a$04$0123456789012345678901uFYdHR7Gj7TsVoT3FD0pbSv4qP1o3Rm"

func TestADocumentOfUsersIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		`{"users":[{"name":"a","passwords":["` + hash + `"],"permissions":{"publish":{"allow":["x"]}}}],"anonymous":"a"}`: "",
		`{"users":[{"name":"a","pass":"x"}]}`:             `unknown field "pass"`,
		`{"users":[]} {}`:                                 "more behind it",
		`{"users":[{"name":""}]}`:                         "user 1: a name has 1 to 256 bytes",
		`{"users":[{"name":"a"},{"name":"a"}]}`:           `user "a": is there twice`,
		`{"users":[{"name":"a","passwords":["secret"]}]}`: "carillon user hash",
		`{"users":[{"name":"a","passwords":["$2a$20$0123456789012345678901uFYdHR7Gj7TsVoT3FD0pbSv4qP1o3Rm"]}]}`: "cost 20",
		`{"users":[{"name":"a","tokens":["secret"]}]}`:                                                          "carillon user token",
		`{"users":[{"name":"a","nkeys":["SUAN"]}]}`:                                                             "not a user's public key",
		`{"users":[{"name":"a","certificates":["CN=x"]},{"name":"b","certificates":["CN=x"]}]}`:                 `user "b": has the same name of a certificate as user "a"`,
		`{"users":[{"name":"a","roles":["admin"]}]}`:                                                            `"admin" is none`,
		`{"users":[{"name":"a","permissions":{"publish":{"allow":["a..b"]}}}]}`:                                 `user "a": permissions.publish.allow: "a..b" is not a subject`,
		`{"users":[{"name":"a","permissions":{"publish":{"deny":["a q"]}}}]}`:                                   `permissions.publish.deny: "a q" names a queue group`,
		`{"users":[{"name":"a","permissions":{"allowResponses":{"expires":"soon"}}}]}`:                          "allowResponses.expires",
		`{"users":[{"name":"a","limits":{"connections":-1}}]}`:                                                  "limits.connections",
		`{"users":[{"name":"a","limits":{"messages":-1}}]}`:                                                     "limits.messages",
		`{"users":[{"name":"a","limits":{"bytes":-1}}]}`:                                                        "limits.bytes",
		`{"users":[{"name":"a","limits":{"tokens":-1}}]}`:                                                       "limits.tokens",
		`{"users":[{"name":"a","limits":{"subscriptionBytes":-1}}]}`:                                            "limits.subscriptionBytes",
		`{"users":[{"name":"a","limits":{"streams":-1}}]}`:                                                      "limits.streams",
		`{"users":[{"name":"a","limits":{"consumers":-1}}]}`:                                                    "limits.consumers",
		`{"users":[{"name":"a","limits":{"snapshots":-1}}]}`:                                                    "limits.snapshots",
		`{"users":[{"name":"a","limits":{"pulls":-1}}]}`:                                                        "limits.pulls",
		`{"users":[{"name":"a","limits":{"storedBytes":-1}}]}`:                                                  "limits.storedBytes",
		`{"users":[{"name":"a"}],"anonymous":"b"}`:                                                              `anonymous: there is no user "b"`,
		`{"users":[{"name":"a"}],"defaultPermissions":{"subscribe":{"allow":[">.a"]}}}`:                         "defaultPermissions: permissions.subscribe.allow",
	} {
		doc, err := Parse([]byte(text))
		if err == nil {
			_, err = doc.Table()
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestResponsesHaveDefaults(t *testing.T) {
	most, within := compiled(t, Permissions{AllowResponses: &Responses{}}).Responses()
	if most != 1 || within != 2*time.Minute {
		t.Errorf("%d within %v", most, within)
	}
	is := compiled(t, Permissions{AllowResponses: &Responses{Max: -1, Expires: "-1s"}})
	if most, within := is.Responses(); most >= 0 || within >= 0 || is.MayPublish([]byte("a")) {
		t.Errorf("%d within %v, or it may publish anyway", most, within)
	}
}

// TestAnEntryOfAQueueGroup is about members of that group only, when they subscribe and when
// messages are delivered.
func TestAnEntryOfAQueueGroup(t *testing.T) {
	is := compiled(t, Permissions{Subscribe: &Subjects{
		Allow: []string{"a", "a v1.>", "b q", "c.*"},
		Deny:  []string{"c.x q", "c.* v1.*"},
	}})
	for _, c := range []struct {
		pattern, queue string
		may, filters   bool
	}{
		{"a", "", true, false}, {"a", "v1.x", true, false}, {"a", "v2", false, false}, {"b", "", false, false}, {"b", "q", true, false},
		{"b", "r", false, false}, {"c.*", "", true, false}, {"c.*", "q", true, true}, {"c.*", "r", true, false}, {"c.*", "v1.x", false, true},
		{"c.x", "q", false, true}, {"c.y", "q", true, false},
	} {
		if got := is.MaySubscribe([]byte(c.pattern), []byte(c.queue)); got != c.may {
			t.Errorf("may subscribe to %s in %q: %v", c.pattern, c.queue, got)
		}
		if got := is.Filters(c.pattern, c.queue); got != c.filters {
			t.Errorf("%s in %q is filtered: %v", c.pattern, c.queue, got)
		}
	}
	if is.MayReceive([]byte("c.x"), "q") || !is.MayReceive([]byte("c.x"), "") || !is.MayReceive([]byte("c.x"), "r") || !is.MayReceive([]byte("c.y"), "q") {
		t.Error("the filter is wrong")
	}
}

func emptyToken(s string) bool { return slices.Contains(strings.Split(s, "."), "") }

func FuzzPermissions(f *testing.F) {
	f.Add("a.*", "a.b", "a.>")
	f.Fuzz(func(t *testing.T, allow, deny, of string) {
		r, err := (&Permissions{Publish: &Subjects{Allow: []string{allow}, Deny: []string{deny}}}).compile()
		if err != nil {
			return
		}
		to := []byte(of)
		want := subject.Matches([]byte(allow), to) && !subject.Matches([]byte(deny), to)
		if r.mayPublish(to) != want && !emptyToken(of) {
			t.Errorf("allowed %q, denied %q: %q may be published: %v", allow, deny, of, !want)
		}
		r.maySubscribe(to, nil)
		r.filters(of, nil)
	})
}
