package jsapi

import (
	"strings"

	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/transform"
)

// SubjectTransform is under which other subjects messages are stored.
type SubjectTransform struct {
	Source      string `json:"src"`
	Destination string `json:"dest"`
}

// checkTransform checks the stream's transform. The subjects must be normalized.
func (c *StreamConfig) checkTransform() *Error {
	t := c.SubjectTransform
	if t == nil {
		return nil
	}
	if t.Source != "" && !subject.ValidPattern([]byte(t.Source)) {
		return ErrStreamTransformSource.With(transform.ErrSubject.Error() + " " + t.Source)
	}
	if _, err := transform.New(t.Source, t.Destination); err != nil {
		return ErrStreamTransformDestination.With(err)
	}
	// Topics whose subjects begin with a wildcard keep no such messages.
	if hidden := strings.HasPrefix(t.Destination, "$") || strings.HasPrefix(t.Destination, "_INBOX."); hidden && !isPlaceholder(t.Destination) {
		for _, s := range c.Subjects {
			if s[0] == '*' || s[0] == '>' {
				return ErrStreamTransformDestination.With("a stream whose subjects begin with a wildcard keeps no messages under " + t.Destination)
			}
		}
	}
	return nil
}

// isPlaceholder reports whether a destination begins with $ and a digit: the token of a wildcard.
func isPlaceholder(destination string) bool {
	return len(destination) > 1 && destination[0] == '$' && destination[1] >= '0' && destination[1] <= '9'
}
