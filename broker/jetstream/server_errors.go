package jetstream

import (
	"errors"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/topic"
)

// noResponders is what a client is told where nobody subscribes to what it asks.
const noResponders Status = "503"

func isNotFound(err error) bool {
	var e *coordination.NotFoundError
	return errors.As(err, &e)
}

// opening says whether a stream is not served only for a moment.
func opening(why error) bool {
	var e *topic.NotServedError
	if why == nil {
		return true // it has just been opened
	}
	return errors.As(why, &e) && (e.Reason == topic.Opening || e.Reason == topic.CatchingUp || e.Reason == topic.Unplaced || e.Reason == topic.NotConfirmed)
}

// offline says why a stream can't be asked.
func offline(why error) *Error {
	if why == nil {
		return ErrStreamOfflineReason.With("its leader changes; try again")
	}
	return ErrStreamOfflineReason.With(why)
}

// unavailable says that etcd could not be asked.
func unavailable(err error) *Error { return because(ErrClusterNotAvailable, err) }

// streamRefusal is what a client is told when etcd refused to change a stream. general is for what has
// no number of its own.
func streamRefusal(err error, general *Template) *Error {
	var (
		invalid   *coordination.InvalidError
		overlap   *coordination.OverlapError
		exists    *coordination.ExistsError
		notOwner  *coordination.NotOwnerError
		immutable *coordination.ImmutableError
		stale     *coordination.StaleError
	)
	switch {
	case errors.As(err, &invalid), errors.As(err, &immutable):
		return ErrStreamInvalidConfig.With(err)
	case errors.As(err, &overlap):
		return because(ErrStreamSubjectOverlap, err)
	case errors.As(err, &exists):
		return because(ErrStreamNameExist, err)
	case errors.As(err, &notOwner), errors.As(err, &stale):
		return general.With(err)
	case isNotFound(err):
		return ErrStreamNotFound
	}
	return unavailable(err)
}

// consumerRefusal is the same for consumers.
func consumerRefusal(err error) *Error {
	var (
		invalid   *coordination.InvalidError
		exists    *coordination.ExistsError
		notOwner  *coordination.NotOwnerError
		immutable *coordination.ImmutableError
		stale     *coordination.StaleError
	)
	switch {
	case errors.As(err, &exists):
		return because(ErrConsumerAlreadyExists, err)
	case errors.As(err, &invalid), errors.As(err, &immutable), errors.As(err, &notOwner), errors.As(err, &stale):
		return ErrConsumerCreate.With(err)
	case isNotFound(err):
		return ErrConsumerNotFound
	}
	return unavailable(err)
}

// because adds to a fixed description what it leaves open. Clients go by the number.
func because(e *Error, why error) *Error {
	return &Error{e.Code, e.ErrCode, e.Description + ": " + oneLine(why.Error())}
}
