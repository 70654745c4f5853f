package replica

import (
	"errors"
	"math"

	"github.com/carillon-mq/carillon/broker/log"
)

// A damaged leader fetches what it lacks from followers that offer it: those which repair their
// copies, and those whose copies are to be set aside as a whole. So a record is given up only if no
// copy has it, and two followers that each lack what the other one has both become whole.
//
//  1. The follower offers one log at a time, with what it lacks of it (extent). The leader answers
//     with a span that it wants (pieceWanted), with pieceUnwanted if it lacks nothing that the
//     follower has, or with a refusal if that is not known yet.
//  2. The leader wants only records up to where the two logs are known to be equal: by Compare, and
//     not where its own damage may hide the begin of an epoch (mending.knownBefore).
//  3. A segment is written from front to back. If what is due is lost to all replicas, the leader
//     gives it up there. While a replica that is away may have it, the follower waits.
//  4. A copy is set aside only after its leader has read its own log and wants nothing of it.
//     A leader of a version without coordination.FeatureExtents is not asked.

// offer is what a follower does with its copy when nothing of it is wanted.
type offer uint8

const (
	offersNothing offer = iota // the fetch is a fetch
	offersMore                 // it goes on with its repair
	offersLast                 // it sets its copy aside
)

// offersAgain is how long a repair waits before it offers its records again.
const offersAgain = 2 * askAgainMax

// offering is the state of a follower's offer.
type offering struct {
	kind  offer // offersNothing: no offer is under way
	epoch int64 // of the leader that wanted nothing of the parts before part
	part  Part
	// described reports that the copy was read to know what it lacks. If its disk did not read it,
	// it is offered as it is: the leader may lack nothing of it.
	described bool
	given     []byte // batches that the leader wanted, to be sent before the next offer
}

// Why an offer has no answer yet.
var (
	errLooking  = errors.New("it reads its own copy, to know which records it lacks")
	errMending  = errors.New("it adds the records to its own copy")
	errFailed   = errors.New("it could not add the records to its own copy, and tries again")
	errWantMore = errors.New("it lacks records that only another replica may have, and then this one's")
	errNotKnown = errors.New("which records the offered copy lacks is not known")
)

// appendOffer appends the frames of an offer. mu is held.
func (f *Following) appendOffer(dst []byte) []byte {
	m := f.repair
	head := requestHead{stream: f.stream, ID: f.config.ID, epoch: f.epoch.Load()}
	if m.offering.given != nil {
		dst = appendGiven(dst, &given{requestHead: head, part: m.offering.part, batches: m.offering.given})
		m.offering.given = nil
	}
	e := m.lacking()
	e.own, e.offer = ownRecord{}, m.offering.kind
	head.round = f.round.Add(1)
	f.step = asked
	f.x.counters.outAsks.Add(1)
	return appendFetch(dst, &fetch{
		requestHead: head, part: m.offering.part, span: log.Span{From: 1, Next: math.MaxUint64},
		log: LineageOf(f.config.Logs[m.offering.part]), extent: e,
	})
}

// offered handles the answer to an offer, or prepares the first one. done reports that the offer is
// over. The logs are in use.
func (m *repairing) offered(f *Following, a answered, epoch int64) (done bool, err error) {
	o := &m.offering
	if o.epoch != epoch { // another leader may want what this one did not
		o.epoch, o.part, o.given = epoch, 0, nil
	}
	switch {
	case a.piece == nil:
		m.describe(f) // records may have become unreadable
		o.described = true
		if done = a.refused != "" && o.kind == offersMore; !m.extent.known {
			err = errNotKnown
		}
	case a.piece.kind == pieceWanted:
		o.given, err = f.readWanted(o.part, log.Span{From: be.Uint64(a.piece.batches), Next: be.Uint64(a.piece.batches[8:])})
		if err != nil { // the copy lacks more than it said
			m.extent.known = false
			if _, err := f.config.Logs[o.part].SealDamagedTail(); err != nil {
				return false, err
			}
		}
	case a.piece.kind == pieceUnwanted:
		o.part++
		done = o.part == Parts
	default:
		err = errors.New("its leader answered an offer as if it were a fetch")
	}
	if o.kind == offersMore && (done || err != nil) {
		*o, m.offers = offering{}, f.x.config.Now()
	}
	return done, err
}

// beginOffer begins an offer after a refusal, unless there was one lately.
func (m *repairing) beginOffer(f *Following) {
	if m.extent.known && (m.offers == 0 || f.x.config.Now()-m.offers > offersAgain) {
		m.offering.kind = offersMore
	}
}

// readWanted reads batches from the beginning of a span on: at most one turn, or one batch.
func (f *Following) readWanted(p Part, want log.Span) (batches []byte, err error) {
	v, err := f.config.Logs[p].NewCursor(want.From).Read(turnBytes)
	if err != nil {
		return nil, err
	}
	defer v.Release()
	for b, ok := v.Next(); ok && b.Base() < want.Next; b, ok = v.Next() {
		batches = append(batches, b...)
	}
	return batches, nil
}
