package jsapi

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestClientsKnowTheErrors: nats.go maps an answer to its own error by the code alone.
func TestClientsKnowTheErrors(t *testing.T) {
	for _, test := range []struct {
		ours   *Error
		theirs jetstream.JetStreamError
	}{
		{ErrStreamNotFound, jetstream.ErrStreamNotFound},
		{ErrStreamNameExist, jetstream.ErrStreamNameAlreadyInUse},
		{ErrConsumerNotFound, jetstream.ErrConsumerNotFound},
		{ErrConsumerAlreadyExists, jetstream.ErrConsumerExists},
		{ErrConsumerDoesNotExist, jetstream.ErrConsumerDoesNotExist},
		{ErrNoMessageFound, jetstream.ErrMsgNotFound},
		{ErrBadRequest, jetstream.ErrBadRequest},
		{ErrMaximumConsumersLimit, jetstream.ErrMaximumConsumersLimit},
		{ErrConsumerDuplicateFilterSubjects, jetstream.ErrDuplicateFilterSubjects},
		{ErrConsumerOverlappingSubjectFilters, jetstream.ErrOverlappingFilterSubjects},
		{ErrConsumerEmptyFilter, jetstream.ErrEmptyFilter},
		{ErrConsumerCreate.With("why"), jetstream.ErrConsumerCreate},
		{ErrMessageSchedulesDisabled, jetstream.ErrMessageSchedulesDisabled},
	} {
		var answer struct {
			Type  string
			Error *jetstream.APIError
		}
		if err := json.Unmarshal(StreamCreate.Refuse(test.ours), &answer); err != nil {
			t.Fatal(err)
		}
		if answer.Type != "io.nats.jetstream.api.v1.stream_create_response" {
			t.Errorf("type %q", answer.Type)
		}
		if !errors.Is(test.theirs, answer.Error) {
			t.Errorf("%v reaches a client as %+v, not as %v", test.ours, answer.Error, test.theirs)
		}
	}
}

func TestErrorTemplatesAreFilledIn(t *testing.T) {
	for _, test := range []struct {
		err  *Error
		want string
	}{
		{ErrStreamWrongLastSequence.With(uint64(7)), "wrong last sequence: 7"},
		{ErrStreamInvalidConfig.With("max age can not be negative"), "max age can not be negative"},
		{ErrStreamWrongLastMsgID.With("a\r\n{b}"), "wrong last msg ID: a  {b}"},
	} {
		if test.err.Description != test.want {
			t.Errorf("%q, want %q", test.err.Description, test.want)
		}
	}
	if a, b := ErrStreamWrongLastSequence.With(1), ErrStreamWrongLastSequence.With(2); !errors.Is(a, b) || errors.Is(a, ErrBadRequest) {
		t.Error("errors are told apart by their number")
	}
	if ErrStreamWrongLastSequence.Description != "wrong last sequence: {seq}" {
		t.Error("the template was changed")
	}
}
