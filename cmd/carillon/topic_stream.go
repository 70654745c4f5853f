package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// streamFlags are the settings of a new Topic that are off unless somebody asks for them.
type streamFlags struct {
	messageTTL, schedules, counters, batches bool
	markerTTL                                ageFlag
	republish                                []string
	republishHeaders                         bool
	sources                                  []string
	mirror                                   string
}

func (s *streamFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&s.messageTTL, "message-ttl", false, "let messages have a time to live of their own (Nats-TTL)")
	f.Var(&s.markerTTL, "marker-ttl", "how long a marker stays in the place of a subject's last message that went by its age, for example 1h; with --message-ttl (default no markers)")
	f.StringSliceVar(&s.republish, "republish", nil, "`SOURCE,DESTINATION`: publish what is stored again, for example 'orders.*,copies.{{wildcard(1)}}'")
	f.BoolVar(&s.republishHeaders, "republish-headers-only", false, "publish it again without payload")
	f.StringSliceVar(&s.sources, "sources", nil, "`TOPICS` whose messages are copied into it, each into the shard of its subject")
	f.StringVar(&s.mirror, "mirror", "", "`TOPIC` that it is a copy of, with its sequences; it has no subjects then")
	f.BoolVar(&s.schedules, "schedules", false, "let clients publish messages that come later, or again and again (Nats-Schedule)")
	f.BoolVar(&s.counters, "counters", false, "make each subject a counter, to which messages add (Nats-Incr)")
	f.BoolVar(&s.batches, "atomic-batches", false, "let clients publish messages that are kept together or not at all")
}

// apply sets the flags in a stream's configuration.
func (s *streamFlags) apply(config *jetstream.StreamConfig, subjects bool) error {
	config.AllowMsgTTL, config.SubjectDeleteMarkerTTL = s.messageTTL || s.markerTTL > 0, time.Duration(s.markerTTL)
	config.AllowMsgSchedules, config.AllowMsgCounter, config.AllowAtomicPublish = s.schedules, s.counters, s.batches
	switch {
	case s.markerTTL > 0 && time.Duration(s.markerTTL) < time.Second:
		return errors.New("--marker-ttl can't be less than 1s")
	case len(s.republish) == 2:
		config.RePublish = &jetstream.RePublish{Source: s.republish[0], Destination: s.republish[1], HeadersOnly: s.republishHeaders}
	case len(s.republish) > 0:
		return fmt.Errorf("--republish %q: write SOURCE,DESTINATION, for example 'orders.*,copies.{{wildcard(1)}}'", strings.Join(s.republish, ","))
	case s.republishHeaders:
		return errors.New("--republish-headers-only needs --republish")
	}
	if s.mirror != "" && (subjects || len(s.sources) > 0) {
		return errors.New("--mirror goes with neither --subjects nor --sources: a mirror has the subjects of its topic")
	}
	if s.mirror != "" {
		config.Mirror = &jetstream.StreamSource{Name: s.mirror}
	}
	for _, name := range s.sources {
		config.Sources = append(config.Sources, &jetstream.StreamSource{Name: name})
	}
	if s.copies() && !subjects {
		config.Subjects = nil
	}
	return nil
}

// copies reports whether the Topic has messages of others.
func (s *streamFlags) copies() bool { return s.mirror != "" || len(s.sources) > 0 }

// streamRows returns the lines of topic show for the settings of these flags.
func streamRows(s *coordination.StreamSettings) (rows [][2]string) {
	add := func(asked bool, name, value string) {
		if asked {
			rows = append(rows, [2]string{name, value})
		}
	}
	ttl := "messages may have one of their own"
	if s.SubjectDeleteMarkerTTL > 0 {
		ttl += ", and a marker stays for " + durationText(s.SubjectDeleteMarkerTTL)
	}
	add(s.AllowMessageTTL, "Message TTL", ttl)
	if r := s.Republish; r != nil {
		text := r.Source + " to " + r.Destination
		if r.HeadersOnly {
			text += ", without payload"
		}
		add(true, "Republishes", text)
	}
	for _, from := range s.Copies() {
		name := "Source"
		if from.Mirrored {
			name = "Mirror of"
		}
		add(true, name, sourceText(&from))
	}
	add(s.AllowSchedules, "Schedules", "allowed: messages may come later, or again and again")
	add(s.AllowCounter, "Counters", "each subject is one")
	add(s.AllowAtomic, "Atomic batches", "allowed")
	return rows
}

func sourceText(s *coordination.StreamSource) string {
	text := s.Name
	switch {
	case s.StartSequence > 0:
		text += fmt.Sprintf(" from #%d", s.StartSequence)
	case !s.StartTime.IsZero():
		text += " from " + timeText(s.StartTime)
	}
	if s.Filter != "" {
		text += ", subjects " + s.Filter
	}
	for _, t := range s.Transforms {
		text += fmt.Sprintf(", %s to %s", t.Source, t.Destination)
	}
	return text
}
