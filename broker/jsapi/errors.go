package jsapi

import (
	"fmt"
	"strings"
)

// Error is the error of an API call or a publish. Clients match ErrCode and people read the
// description, so all three fields are as in nats-server.
type Error struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description,omitempty"`
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s (JetStream error %d)", e.Description, e.ErrCode)
}

// Is reports whether target has the same ErrCode, whatever the descriptions.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.ErrCode == e.ErrCode
}

// Template is an error whose description has a placeholder {word}.
type Template Error

// With fills in the placeholder. It replaces line breaks, since errors travel in one line.
func (t *Template) With(what any) *Error {
	text := OneLine(fmt.Sprint(what))
	before, rest, found := strings.Cut(t.Description, "{")
	if _, after, closed := strings.Cut(rest, "}"); found && closed {
		text = before + text + after
	}
	return &Error{t.Code, t.ErrCode, text}
}

// Forbid is With for what the user has no right to.
func (t *Template) Forbid(what any) *Error {
	e := t.With(what)
	e.Code = 403
	return e
}

// OneLine replaces control characters by blanks.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// Errors with a fixed description. They are shared: never change one.
var (
	ErrAccountResourcesExceeded               = &Error{400, 10002, "resource limits exceeded for account"}
	ErrBadRequest                             = &Error{400, 10003, "bad request"}
	ErrClusterNotAvailable                    = &Error{503, 10008, "JetStream system temporarily unavailable"}
	ErrClusterRequired                        = &Error{503, 10010, "JetStream clustering support required"}
	ErrConsumerNameExist                      = &Error{400, 10013, "consumer name already in use"}
	ErrConsumerNotFound                       = &Error{404, 10014, "consumer not found"}
	ErrConsumerDurableNameNotMatchSubject     = &Error{400, 10017, "consumer name in subject does not match durable name in request"}
	ErrConsumerDurableNameNotSet              = &Error{400, 10018, "consumer expected to be durable but a durable name was not set"}
	ErrConsumerEphemeralWithDurableName       = &Error{400, 10020, "consumer expected to be ephemeral but a durable name was set in request"}
	ErrInsufficientResources                  = &Error{503, 10023, "insufficient resources"}
	ErrMaximumConsumersLimit                  = &Error{400, 10026, "maximum consumers limit reached"}
	ErrMaximumStreamsLimit                    = &Error{400, 10027, "maximum number of streams reached"}
	ErrStorageResourcesExceeded               = &Error{500, 10047, "insufficient storage resources available"}
	ErrStreamMaxBytesRequired                 = &Error{400, 10113, "account requires a stream config to have max bytes set"}
	ErrNoMessageFound                         = &Error{404, 10037, "no message found"}
	ErrNotEmptyRequest                        = &Error{400, 10038, "expected an empty request payload"}
	ErrStreamMessageExceedsMaximum            = &Error{400, 10054, "message size exceeds maximum allowed"}
	ErrStreamMismatch                         = &Error{400, 10056, "stream name in subject does not match request"}
	ErrStreamNameExist                        = &Error{400, 10058, "stream name already in use with a different configuration"}
	ErrStreamNotFound                         = &Error{404, 10059, "stream not found"}
	ErrStreamNotMatch                         = &Error{400, 10060, "expected stream does not match"}
	ErrStreamSubjectOverlap                   = &Error{400, 10065, "subjects overlap with an existing stream"}
	ErrStreamReplicasNotSupported             = &Error{500, 10074, "replicas > 1 not supported in non-clustered mode"}
	ErrConsumerDeliverToWildcards             = &Error{400, 10079, "consumer deliver subject has wildcards"}
	ErrConsumerPushMaxWaiting                 = &Error{400, 10080, "consumer in push mode can not set max waiting"}
	ErrConsumerDeliverCycle                   = &Error{400, 10081, "consumer deliver subject forms a cycle"}
	ErrConsumerMaxPendingAckPolicyRequired    = &Error{400, 10082, "consumer requires ack policy for max ack pending"}
	ErrConsumerSmallHeartbeat                 = &Error{400, 10083, "consumer idle heartbeat needs to be >= 100ms"}
	ErrConsumerPullRequiresAck                = &Error{400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream"}
	ErrConsumerPullWithRateLimit              = &Error{400, 10086, "consumer in pull mode can not have rate limit set"}
	ErrConsumerHBRequiresPush                 = &Error{400, 10088, "consumer idle heartbeat requires a push based consumer"}
	ErrConsumerFCRequiresPush                 = &Error{400, 10089, "consumer flow control requires a push based consumer"}
	ErrConsumerWQRequiresExplicitAck          = &Error{400, 10098, "workqueue stream requires explicit ack"}
	ErrConsumerWQMultipleUnfiltered           = &Error{400, 10099, "multiple non-filtered consumers not allowed on workqueue stream"}
	ErrConsumerWQConsumerNotUnique            = &Error{400, 10100, "filtered consumer not unique on workqueue stream"}
	ErrConsumerWQConsumerNotDeliverAll        = &Error{400, 10101, "consumer must be deliver all on workqueue stream"}
	ErrConsumerWithFlowControlNeedsHeartbeats = &Error{400, 10108, "consumer with flow control also needs heartbeats"}
	ErrStreamSealed                           = &Error{400, 10109, "invalid operation on sealed stream"}
	ErrConsumerInvalidDeliverSubject          = &Error{400, 10112, "invalid push consumer deliver subject"}
	ErrConsumerMaxRequestExpiresTooSmall      = &Error{400, 10115, "consumer max request expires needs to be >= 1ms"}
	ErrConsumerMaxDeliverBackoff              = &Error{400, 10116, "max deliver is required to be > length of backoff values"}
	ErrStreamOffline                          = &Error{500, 10118, "stream is offline"}
	ErrConsumerReplicasExceedsStream          = &Error{400, 10126, "consumer config replica count exceeds parent stream"}
	ErrConsumerNameContainsPathSeparators     = &Error{400, 10127, "Consumer name can not contain path separators"}
	ErrConsumerCreateFilterSubjectMismatch    = &Error{400, 10131, "Consumer create request did not match filtered subject from create subject"}
	ErrConsumerCreateDurableAndNameMismatch   = &Error{400, 10132, "Consumer Durable and Name have to be equal if both are provided"}
	ErrReplicasCountCannotBeNegative          = &Error{400, 10133, "replicas count cannot be negative"}
	ErrConsumerReplicasShouldMatchStream      = &Error{400, 10134, "consumer config replicas must match interest retention stream's replicas"}
	ErrConsumerDuplicateFilterSubjects        = &Error{400, 10136, "consumer cannot have both FilterSubject and FilterSubjects specified"}
	ErrConsumerMultipleFiltersNotAllowed      = &Error{400, 10137, "consumer with multiple subject filters cannot use subject based API"}
	ErrConsumerOverlappingSubjectFilters      = &Error{400, 10138, "consumer subject filters cannot overlap"}
	ErrConsumerEmptyFilter                    = &Error{400, 10139, "consumer filter in FilterSubjects cannot be empty"}
	ErrConsumerAlreadyExists                  = &Error{400, 10148, "consumer already exists"}
	ErrConsumerDoesNotExist                   = &Error{400, 10149, "consumer does not exist"}
	ErrMessageTTLInvalid                      = &Error{400, 10165, "invalid per-message TTL"}
	ErrMessageTTLDisabled                     = &Error{400, 10166, "per-message TTL is disabled"}
	ErrMessageIncrDisabled                    = &Error{400, 10168, "message counters is disabled"}
	ErrMessageIncrMissing                     = &Error{400, 10169, "message counter increment is missing"}
	ErrMessageIncrPayload                     = &Error{400, 10170, "message counter has payload"}
	ErrMessageIncrInvalid                     = &Error{400, 10171, "message counter increment is invalid"}
	ErrMessageCounterBroken                   = &Error{400, 10172, "message counter is broken"}
	ErrAtomicPublishDisabled                  = &Error{400, 10174, "atomic publish is disabled"}
	ErrAtomicPublishMissingSequence           = &Error{400, 10175, "atomic publish sequence is missing"}
	ErrAtomicPublishIncomplete                = &Error{400, 10176, "atomic publish batch is incomplete"}
	ErrAtomicPublishInvalidID                 = &Error{400, 10179, "atomic publish batch ID is invalid"}
	ErrAtomicPublishInvalidCommit             = &Error{400, 10200, "atomic publish batch commit is invalid"}
	ErrAtomicPublishDuplicate                 = &Error{400, 10201, "atomic publish batch contains duplicate message id"}
	ErrAtomicPublishTooManyInflight           = &Error{429, 10210, "atomic publish too many inflight"}
	ErrBatchPublishDisabled                   = &Error{400, 10205, "batch publish is disabled"}
	ErrBatchPublishInvalidPattern             = &Error{400, 10206, "batch publish pattern is invalid"}
	ErrBatchPublishInvalidBatchID             = &Error{400, 10207, "batch publish ID is invalid"}
	ErrBatchPublishUnknownBatchID             = &Error{400, 10208, "batch publish ID unknown"}
	ErrBatchPublishTooManyInflight            = &Error{429, 10211, "batch publish too many inflight"}
	ErrMirrorWithBatchPublish                 = &Error{400, 10209, "stream mirrors can not also use batch publishing"}
	ErrStreamWrongLastSequenceConstant        = &Error{400, 10164, "wrong last sequence"}
	ErrConsumerAckPolicyInvalid               = &Error{400, 10181, "consumer ack policy invalid"}
	ErrConsumerReplayPolicyInvalid            = &Error{400, 10182, "consumer replay policy invalid"}
	ErrConsumerAckWaitNegative                = &Error{400, 10183, "consumer ack wait needs to be positive"}
	ErrConsumerBackOffNegative                = &Error{400, 10184, "consumer backoff needs to be positive"}
	ErrRequiredAPILevel                       = &Error{412, 10185, "JetStream minimum api level required"}
	ErrMessageSchedulesDisabled               = &Error{400, 10188, "message schedules is disabled"}
	ErrMessageSchedulesPatternInvalid         = &Error{400, 10189, "message schedules pattern is invalid"}
	ErrMessageSchedulesTargetInvalid          = &Error{400, 10190, "message schedules target is invalid"}
	ErrMessageSchedulesTTLInvalid             = &Error{400, 10191, "message schedules invalid per-message TTL"}
	ErrMessageSchedulesRollupInvalid          = &Error{400, 10192, "message schedules invalid rollup"}
	ErrMessageSchedulesSourceInvalid          = &Error{400, 10203, "message schedules source is invalid"}
	ErrMessageSchedulesSchedulerInvalid       = &Error{400, 10212, "message schedules invalid scheduler"}
	ErrMessageSchedulesTimeZoneInvalid        = &Error{400, 10223, "message schedules time zone is invalid"}
	ErrStreamExpectedLastSeqPerSubjectInvalid = &Error{400, 10193, "missing sequence for expected last sequence per subject"}
	ErrMirrorMaxMessageSizeTooBig             = &Error{400, 10030, "stream mirror must have max message size >= source"}
	ErrMirrorWithSources                      = &Error{400, 10031, "stream mirrors can not also contain other sources"}
	ErrMirrorWithSubjects                     = &Error{400, 10034, "stream mirrors can not contain subjects"}
	ErrStreamMirrorNotUpdatable               = &Error{400, 10055, "stream mirror configuration can not be updated"}
	ErrMirrorInvalidStreamName                = &Error{400, 10142, "mirrored stream name is invalid"}
	ErrMirrorWithFirstSeq                     = &Error{400, 10143, "stream mirrors can not have first sequence configured"}
	ErrMirrorMultipleFiltersNotAllowed        = &Error{400, 10150, "mirror with multiple subject transforms cannot also have a single subject filter"}
	ErrMirrorOverlappingSubjectFilters        = &Error{400, 10152, "mirror subject filters can not overlap"}
	ErrSourceMaxMessageSizeTooBig             = &Error{400, 10046, "stream source must have max message size >= target"}
	ErrSourceDuplicateDetected                = &Error{400, 10140, "duplicate source configuration detected"}
	ErrSourceInvalidStreamName                = &Error{400, 10141, "sourced stream name is invalid"}
	ErrSourceMultipleFiltersNotAllowed        = &Error{400, 10144, "source with multiple subject transforms cannot also have a single subject filter"}
	ErrSourceOverlappingSubjectFilters        = &Error{400, 10147, "source filters can not overlap"}
	ErrMessageSourceHdrNotAllowed             = &Error{400, 10227, "message stream source header is not allowed"}
)

// Errors whose description names something.
var (
	ErrClusterNoPeers                  = &Template{400, 10005, "{err}"}
	ErrConsumerCreate                  = &Template{500, 10012, "{err}"}
	ErrInvalidJSON                     = &Template{400, 10025, "invalid JSON: {err}"}
	ErrSequenceNotFound                = &Template{400, 10043, "sequence {seq} not found"}
	ErrStreamCreate                    = &Template{500, 10049, "{err}"}
	ErrStreamDelete                    = &Template{500, 10050, "{err}"}
	ErrStreamGeneral                   = &Template{500, 10051, "{err}"}
	ErrStreamInvalidConfig             = &Template{500, 10052, "{err}"}
	ErrStreamMsgDeleteFailed           = &Template{500, 10057, "{err}"}
	ErrStreamUpdate                    = &Template{500, 10069, "{err}"}
	ErrStreamWrongLastMsgID            = &Template{400, 10070, "wrong last msg ID: {id}"}
	ErrStreamWrongLastSequence         = &Template{400, 10071, "wrong last sequence: {seq}"}
	ErrStreamStoreFailed               = &Template{503, 10077, "{err}"}
	ErrConsumerInvalidPolicy           = &Template{400, 10094, "{err}"}
	ErrConsumerInvalidReset            = &Template{400, 10204, "invalid reset: {err}"}
	ErrConsumerInvalidSampling         = &Template{400, 10095, "failed to parse consumer sampling configuration: {err}"}
	ErrConsumerDescriptionTooLong      = &Template{400, 10107, "consumer description is too long, maximum allowed is {max}"}
	ErrStreamPurgeFailed               = &Template{500, 10110, "{err}"}
	ErrStreamRollupFailed              = &Template{500, 10111, "{err}"}
	ErrConsumerMaxPendingAckExcess     = &Template{400, 10121, "consumer max ack pending exceeds system limit of {limit}"}
	ErrConsumerMetadataLength          = &Template{400, 10135, "consumer metadata exceeds maximum size of {limit}"}
	ErrSourceConsumerSetupFailed       = &Template{500, 10045, "{err}"}
	ErrMirrorTransformSource           = &Template{400, 10151, "mirror transform source: {err}"}
	ErrMirrorTransformDestination      = &Template{400, 10154, "mirror transform: {err}"}
	ErrMirrorConsumerSetupFailed       = &Template{500, 10029, "{err}"}
	ErrSourceTransformSource           = &Template{400, 10145, "source transform source: {err}"}
	ErrSourceTransformDestination      = &Template{400, 10146, "source transform: {err}"}
	ErrStreamTransformSource           = &Template{400, 10155, "stream transform source: {err}"}
	ErrStreamTransformDestination      = &Template{400, 10156, "stream transform: {err}"}
	ErrAtomicPublishUnsupported        = &Template{400, 10177, "atomic publish unsupported header used: {header}"}
	ErrAtomicPublishTooLarge           = &Template{400, 10199, "atomic publish batch is too large: {size}"}
	ErrPedantic                        = &Template{400, 10157, "pedantic mode: {err}"}
	ErrStreamOfflineReason             = &Template{500, 10194, "stream is offline: {err}"}
	ErrConsumerOfflineReason           = &Template{500, 10195, "consumer is offline: {err}"}
	ErrRecords                         = &Template{400, 40001, "{err}"} // Carillon's own
	ErrNotAfter                        = &Template{400, 40002, "{err}"} // Carillon's own
	ErrConsumerInactiveThresholdExcess = &Template{400, 10153, "consumer inactive threshold exceeds system limit of {limit}"}
)
