package bench

import "fmt"

// A storedAccount compares what a stream holds, read from its beginning, with what was
// published and acknowledged. It is pure, and for one goroutine at a time.
type storedAccount struct {
	run      uint64
	acks     *ackAccount
	accounts []account // by publisher
	position uint64    // of the last message read
	read     int64
	found    Deliveries
	first    error // what the first fault was
}

func newStoredAccount(run uint64, acks *ackAccount) *storedAccount {
	s := &storedAccount{run: run, acks: acks, accounts: make([]account, len(acks.tracks))}
	for i := range s.accounts {
		s.accounts[i] = account{bits: make([]uint64, wordsFor(acks.tracks[i].sent)), highest: -1}
	}
	return s
}

// observe enters the message that stands at a sequence of the stream.
func (s *storedAccount) observe(sequence uint64, payload []byte) {
	s.read++
	if sequence <= s.position {
		s.unexpected(fmt.Errorf("the stream was read at %d after %d", sequence, s.position))
		return
	}
	s.position = sequence
	m, whole := readStamp(payload)
	switch {
	case !whole || m.run != s.run:
		s.unexpected(fmt.Errorf("the message at %d is damaged, or not one that was published", sequence))
		return
	case m.kind == kindProbe:
		return
	case int(m.publisher) >= len(s.accounts) || int(m.sequence) >= s.acks.tracks[m.publisher].sent:
		s.unexpected(fmt.Errorf("the message at %d was never published", sequence))
		return
	}
	publisher, number := int(m.publisher), int(m.sequence)
	acked, was := s.acks.acknowledged(publisher, number)
	verdict := s.accounts[publisher].observe(m.sequence)
	switch {
	case verdict == verdictDuplicate:
		s.fault(fmt.Errorf("message %d of publisher %d stands at %d again", number, publisher, sequence))
		return
	case verdict == verdictReordered && s.acks.handedOn && !was:
		// It was given up, and came through all the same, behind what was sent after it.
		s.accounts[publisher].reordered--
	case verdict == verdictReordered:
		s.fault(fmt.Errorf("message %d of publisher %d stands at %d, behind a later one", number, publisher, sequence))
	}
	if !was {
		return // stored, and the ack got lost or never came: that is allowed
	}
	s.found.Received++
	if acked != sequence {
		s.unexpected(fmt.Errorf("message %d of publisher %d stands at %d, and its ack said %d", number, publisher, sequence, acked))
	}
}

func (s *storedAccount) unexpected(err error) {
	s.found.Unexpected++
	s.fault(err)
}

func (s *storedAccount) fault(err error) {
	if s.first == nil {
		s.first = err
	}
}

// close ends the account. Expected is what was acknowledged, lost what of it is not there.
func (s *storedAccount) close() (Deliveries, error) {
	d := s.found
	for i := range s.accounts {
		d.Duplicated += int64(s.accounts[i].duplicates)
		d.OutOfOrder += int64(s.accounts[i].reordered)
	}
	d.Expected = s.acks.acks.Acked
	d.Lost = d.Expected - d.Received
	return d, s.first
}
