package topic

import "testing"

// A worker puts a shard off and has not left it yet when another worker is idle: the shard is looked at again all the same.
func TestAShardThatIsPutOffIsNotForgotten(t *testing.T) {
	q, p := newQueue(), &Shard{}
	q.add(p)
	if got, idle, ok := q.next(); got != p || idle || !ok {
		t.Fatal("it is not handed out")
	}
	q.postpone(p)
	found := make(chan bool)
	go func() {
		got, idle, ok := q.next()
		found <- ok && idle && got == p
	}()
	for taken := false; !taken; { // by the idle worker, which finds it busy
		q.mu.Lock()
		taken = len(q.later) == 0
		q.mu.Unlock()
	}
	q.done(p)
	if !<-found {
		t.Error("it is forgotten")
	}
	q.close()
}
