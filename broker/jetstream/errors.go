package jetstream

import (
	"errors"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/topic"
)

// noResponders is what a client is told where nobody subscribes to what it asks.
const noResponders jsapi.Status = "503"

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
func offline(why error) *jsapi.Error {
	if why == nil {
		return jsapi.ErrStreamOfflineReason.With("its leader changes; try again")
	}
	return jsapi.ErrStreamOfflineReason.With(why)
}

// unavailable says that etcd could not be asked.
func unavailable(err error) *jsapi.Error { return because(jsapi.ErrClusterNotAvailable, err) }

// streamRefusal is what a client is told when etcd refused to change a stream. general is for what has
// no number of its own.
func streamRefusal(err error, general *jsapi.Template) *jsapi.Error {
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
		return jsapi.ErrStreamInvalidConfig.With(err)
	case errors.As(err, &overlap):
		return because(jsapi.ErrStreamSubjectOverlap, err)
	case errors.As(err, &exists):
		return because(jsapi.ErrStreamNameExist, err)
	case errors.As(err, &notOwner), errors.As(err, &stale):
		return general.With(err)
	case isNotFound(err):
		return jsapi.ErrStreamNotFound
	}
	return unavailable(err)
}

// consumerRefusal is the same for consumers.
func consumerRefusal(err error) *jsapi.Error {
	var (
		invalid   *coordination.InvalidError
		exists    *coordination.ExistsError
		notOwner  *coordination.NotOwnerError
		immutable *coordination.ImmutableError
		stale     *coordination.StaleError
	)
	switch {
	case errors.As(err, &exists):
		return because(jsapi.ErrConsumerAlreadyExists, err)
	case errors.As(err, &invalid), errors.As(err, &immutable), errors.As(err, &notOwner), errors.As(err, &stale):
		return jsapi.ErrConsumerCreate.With(err)
	case isNotFound(err):
		return jsapi.ErrConsumerNotFound
	}
	return unavailable(err)
}

// because adds to a fixed description what it leaves open. Clients go by the number.
func because(e *jsapi.Error, why error) *jsapi.Error {
	return &jsapi.Error{Code: e.Code, ErrCode: e.ErrCode, Description: e.Description + ": " + jsapi.OneLine(why.Error())}
}
