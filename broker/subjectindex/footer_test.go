package subjectindex

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/carillon-mq/carillon/broker/limits"
)

// longSubject is one of the longest subjects that a client can publish to: "PUB <subject> 1".
func longSubject(n int) []byte {
	name := fmt.Sprintf(".%08d", n)
	return append(bytes.Repeat([]byte("a"), limits.ControlLine-len(name)-len(" 1")), name...)
}

// The index of any subjects that clients can publish to can be written.
func TestLongSubjectsCanBeIndexed(t *testing.T) {
	s := openEmpty(t, 0)
	s.Begin()
	for n := range 3000 { // 12 MB of subjects: less than one part
		s.Add(uint64(n+1), 1, longSubject(n))
	}
	s.End()
	for range 3 {
		if err := s.Flush(t.Context()); err != nil {
			t.Errorf("a part can't be flushed: %.300s", err)
		}
	}
	t.Logf("the parts take %d bytes; flushed: %d", s.Bytes(), s.Stats().Flushed)
	if s.Bytes() > 1<<20 {
		t.Error("its memory is never freed")
	}
}

// An open run takes about the memory that the package says (1 KiB), whatever its subjects are.
func TestFootersAreBounded(t *testing.T) {
	s := openEmpty(t, 0)
	s.Begin()
	for n := range 1000 {
		s.Add(uint64(n+1), 1, longSubject(n))
	}
	s.End()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	memory := 0
	eachRun(s.set.layers, func(r *run) {
		for _, b := range r.blocks {
			memory += len(b.separator)
		}
	})
	t.Logf("the footer of a run of %d subjects takes %d bytes", 1000, memory)
	if memory > 64<<10 {
		t.Error("that is neither bounded nor counted")
	}
}
