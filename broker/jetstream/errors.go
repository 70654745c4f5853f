package jetstream

import (
	"errors"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/publish"
)

// noResponders is the status for a request on a subject without subscribers.
const noResponders jsapi.Status = "503"

func isNotFound(err error) bool {
	var e *coordination.NotFoundError
	return errors.As(err, &e)
}

// isStale reports whether the object has changed since the caller read it.
func isStale(err error) bool {
	var e *coordination.StaleError
	return errors.As(err, &e)
}

// streamStarting reports whether the reason why a stream is not served is expected to pass soon.
func streamStarting(why error) bool {
	var e *publish.NotServedError
	if why == nil {
		return true // it has just been opened
	}
	return errors.As(why, &e) && (e.Reason == publish.Opening || e.Reason == publish.CatchingUp || e.Reason == publish.Unplaced || e.Reason == publish.NotConfirmed)
}

// streamOffline is the refusal for a stream that cannot be reached.
func streamOffline(why error) *jsapi.Error {
	if why == nil {
		return jsapi.ErrStreamOfflineReason.With("its leader changes; try again")
	}
	return jsapi.ErrStreamOfflineReason.With(why)
}

// unavailable is the refusal if etcd could not be reached.
func unavailable(err error) *jsapi.Error { return withReason(jsapi.ErrClusterNotAvailable, err) }

// streamRefusal translates an error of a stream's change in etcd. general is for errors without a
// code of their own.
func streamRefusal(err error, general *jsapi.Template) *jsapi.Error {
	var (
		invalid   *coordination.InvalidError
		overlap   *coordination.OverlapError
		exists    *coordination.ExistsError
		notOwner  *coordination.NotOwnerError
		immutable *coordination.ImmutableError
		stale     *coordination.StaleError
		full      *coordination.FullError
		limit     *coordination.LimitError
	)
	switch {
	case errors.As(err, &full):
		return withReason(jsapi.ErrAccountResourcesExceeded, err)
	case errors.As(err, &limit):
		return withReason(beyondLimit(limit), err)
	case errors.As(err, &invalid), errors.As(err, &immutable):
		return jsapi.ErrStreamInvalidConfig.With(err)
	case errors.As(err, &overlap):
		return withReason(jsapi.ErrStreamSubjectOverlap, err)
	case errors.As(err, &exists):
		return withReason(jsapi.ErrStreamNameExist, err)
	case errors.As(err, &notOwner), errors.As(err, &stale):
		return general.With(err)
	case isNotFound(err):
		return jsapi.ErrStreamNotFound
	}
	return unavailable(err)
}

// consumerRefusal translates an error of a consumer's change in etcd.
func consumerRefusal(err error) *jsapi.Error {
	var (
		invalid   *coordination.InvalidError
		exists    *coordination.ExistsError
		notOwner  *coordination.NotOwnerError
		immutable *coordination.ImmutableError
		stale     *coordination.StaleError
		full      *coordination.FullError
		limit     *coordination.LimitError
	)
	switch {
	case errors.As(err, &full):
		return withReason(jsapi.ErrAccountResourcesExceeded, err)
	case errors.As(err, &limit):
		return withReason(beyondLimit(limit), err)
	case errors.As(err, &exists):
		return withReason(jsapi.ErrConsumerAlreadyExists, err)
	case errors.As(err, &invalid), errors.As(err, &immutable), errors.As(err, &notOwner), errors.As(err, &stale):
		return jsapi.ErrConsumerCreate.With(err)
	case isNotFound(err):
		return jsapi.ErrConsumerNotFound
	}
	return unavailable(err)
}

// beyondLimit returns the error of nats-server for a limit of an account.
func beyondLimit(e *coordination.LimitError) *jsapi.Error {
	switch {
	case e.Unbounded:
		return jsapi.ErrStreamMaxBytesRequired
	case e.Limit == coordination.LimitStoredBytes:
		return jsapi.ErrStorageResourcesExceeded
	case e.Limit == coordination.LimitStreams:
		return jsapi.ErrMaximumStreamsLimit
	}
	return jsapi.ErrMaximumConsumersLimit
}

// withReason appends a reason to a fixed description. Clients match the code.
func withReason(e *jsapi.Error, why error) *jsapi.Error {
	return &jsapi.Error{Code: e.Code, ErrCode: e.ErrCode, Description: e.Description + ": " + jsapi.OneLine(why.Error())}
}
