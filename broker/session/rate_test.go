package session

import (
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
)

// TestRoomOfAUser follows one user through its limits. Each step is some time after the one before.
func TestRoomOfAUser(t *testing.T) {
	both, slow := identity.Limits{Messages: 10, Bytes: 1000}, identity.Limits{Messages: 2}
	var r rate
	now := time.Unix(1000, 0)
	for i, step := range []struct {
		why    string
		after  time.Duration
		limits identity.Limits
		times  int
		size   int
		want   time.Duration // of the last time; all others have room
	}{
		{"a burst of one second", 0, both, 10, 1, 0},
		{"and no more", 0, both, 1, 1, 100 * time.Millisecond},
		{"what has no room takes none", 50 * time.Millisecond, both, 1, 1, 50 * time.Millisecond},
		{"the next", 50 * time.Millisecond, both, 1, 1, 0},
		{"a clock that is behind", -time.Second, both, 1, 1, 100 * time.Millisecond},
		{"an hour is worth no more than a second", time.Hour, both, 11, 1, 100 * time.Millisecond},
		{"a message larger than the burst", time.Second, both, 1, 3000, 0},
		{"is paid for by the next", time.Second, both, 1, 1, time.Second + time.Millisecond},
		{"in the end", time.Second + time.Millisecond, both, 1, 1, 0},
		{"less room applies at once", time.Hour, slow, 3, 1 << 20, 500 * time.Millisecond},
		{"and so does none", 0, identity.Limits{}, 1000, 1, 0},
	} {
		now = now.Add(step.after)
		for n := range step.times {
			want := time.Duration(0)
			if n == step.times-1 {
				want = step.want
			}
			if got := r.take(&step.limits, step.size, now); (got - want).Abs() > time.Microsecond {
				t.Fatalf("%d, %s: message %d waits %v, want %v", i, step.why, n, got, want)
			}
		}
	}
}

// TestAUserIsForgottenOnceItHasAllItsRoom: a client that connects anew has no more room than one
// that stays.
func TestAUserIsForgottenOnceItHasAllItsRoom(t *testing.T) {
	h := &Hub{users: make(map[string]*user)}
	start := time.Unix(1000, 0)
	u := new(user)
	h.users["ann"], h.users["bob"] = u, &user{connections: 1}
	u.rate.take(&identity.Limits{Messages: 1}, 1, start)
	for _, step := range []struct {
		after time.Duration
		users int
	}{{0, 2}, {900 * time.Millisecond, 2}, {time.Second, 1}} {
		if h.forget(start.Add(step.after)); len(h.users) != step.users {
			t.Errorf("after %v %d users are known, want %d", step.after, len(h.users), step.users)
		}
	}
}
