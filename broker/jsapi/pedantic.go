package jsapi

import "time"

// CheckPedantic refuses what Normalize would correct. Call it before Normalize.
func (c *StreamConfig) CheckPedantic() *Error {
	for _, limit := range []struct {
		setting string
		value   int64
	}{
		{"max_msgs", c.MaxMessages}, {"max_msgs_per_subject", c.MaxPerSubject}, {"max_bytes", c.MaxBytes},
		{"max_msg_size", int64(c.MaxMessageSize)}, {"max_consumers", int64(c.MaxConsumers)},
	} {
		if limit.value < -1 {
			return ErrPedantic.With(limit.setting + " must be set to -1")
		}
	}
	if c.DuplicateWindow == 0 && c.MaxAge > 0 && c.MaxAge < defaultDuplicates {
		return ErrPedantic.With("duplicate window cannot be bigger than max age")
	}
	switch {
	case c.SubjectDeleteMarkerTTL < time.Second: // Normalize refuses it if it is set
	case !c.AllowMessageTTL:
		return ErrStreamInvalidConfig.With("subject delete marker cannot be set if message TTLs are disabled")
	case !c.AllowRollup:
		return ErrStreamInvalidConfig.With("subject delete marker cannot be set if roll-ups are disabled")
	}
	return nil
}

// CheckPedantic refuses what Normalize would correct. Call it before Normalize.
func (c *ConsumerConfig) CheckPedantic(limits *ConsumerLimits) *Error {
	switch {
	case c.MaxDeliver < -1:
		return ErrPedantic.With("max_deliver must be set to -1")
	case c.MaxAckPending < -1:
		return ErrPedantic.With("max_ack_pending must be set to -1")
	}
	for _, setting := range []struct {
		name  string
		value int64
	}{
		{"max_waiting", int64(c.MaxWaiting)}, {"max_batch", int64(c.MaxRequestBatch)}, {"max_expires", int64(c.MaxRequestExpires)},
		{"max_bytes", int64(c.MaxRequestMaxBytes)}, {"idle_heartbeat", int64(c.Heartbeat)},
		{"inactive_threshold", int64(c.InactiveThreshold)}, {"priority_timeout", int64(c.PriorityTimeout)},
	} {
		if setting.value < 0 {
			return ErrPedantic.With(setting.name + " must not be negative")
		}
	}
	wait := c.AckWait
	if wait == 0 && c.AckPolicy != ackNone {
		wait = defaultAckWait
	}
	switch {
	case len(c.Backoff) > 0 && wait != c.Backoff[0]:
		return ErrPedantic.With("first backoff value has to equal batch AckWait")
	case c.MaxAckPending == 0 && limits.MaxAckPending > 0:
		return ErrPedantic.With("max_ack_pending must be set if it's configured in stream limits")
	case c.InactiveThreshold == 0 && limits.InactiveThreshold > 0:
		return ErrPedantic.With("inactive_threshold must be set if it's configured in stream limits")
	}
	return nil
}
