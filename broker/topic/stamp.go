package topic

import (
	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/stamping"
)

// attributes returns where the attributes of subjects are looked for; nil: no subject has any, or a
// broker is there that would lose what is stored of them.
func (s *Service) attributes() *attribute.Store {
	if a := s.config.Attributes; a != nil && !a.IsEmpty() && s.stamps.Load() {
		return a
	}
	return nil
}

// beginStamps begins the stamps of a batch from an offset on.
func (in *intake) beginStamps(s *Service, base uint64) {
	in.stamps.Begin(base)
	in.stamped, in.look, in.text = 0, nil, ""
	if in.copies = in.sourced != nil && in.sourced.Stamps != nil && s.stamps.Load(); !in.copies {
		in.look = s.attributes()
	}
}

// stamp adds the attributes of the subjects of records that were gathered for a batch from an
// offset on. Those of a subject are looked up once for records in a row: whoever was told that they
// are others publishes later. Copies of other streams have those of the records there.
func (in *intake) stamp(base uint64) {
	switch {
	case in.copies:
		for ; in.stamped < len(in.records); in.stamped++ { // the message that was taken last
			in.stamps.AddBytes(base+uint64(in.stamped), in.sourced.Stamps[in.sourced.Taken-1])
		}
		return
	case in.look == nil:
		return
	}
	if p := &in.append.Packed; p.Count > 0 {
		in.stamps.AddRun(base, base+uint64(p.Count), in.look.Text(p.Subject))
	}
	for ; in.stamped < len(in.records); in.stamped++ {
		r := &in.records[in.stamped]
		if in.stamped == 0 || string(r.Subject) != string(in.records[in.stamped-1].Subject) {
			in.text = in.look.Text(r.Subject)
		}
		in.stamps.Add(base+uint64(in.stamped), in.text)
	}
}

// stampsRoom returns how large the stamps may be with one more record.
func (in *intake) stampsRoom() int {
	if in.look == nil && !in.copies {
		return 0
	}
	return in.stamps.Size() + attribute.MaxBytes
}

// addStamps adds the stamps to the extensions of the batch, and returns their size.
func (in *intake) addStamps() int {
	data := in.stamps.Data()
	if len(data) > 0 {
		in.extensions = append(in.extensions, log.Extension{Type: stamping.ExtensionType, Data: data})
	}
	return len(data)
}
