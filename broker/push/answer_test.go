package push

import (
	"strings"
	"testing"
	"time"
)

func TestAnswersAreJudged(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status int
		after  string
		want   answer
	}{
		{200, "", answer{kind: accepted}},
		{204, "9", answer{kind: accepted}},
		{301, "", answer{kind: refusedIt}},
		{400, "", answer{kind: refusedIt}},
		{404, "", answer{kind: refusedIt}},
		{408, "", answer{kind: unavailable}},
		{410, "", answer{kind: unavailable, gone: true}},
		{425, "", answer{kind: unavailable}},
		{429, "", answer{kind: unavailable}},
		{429, "7", answer{kind: unavailable, after: 7 * time.Second}},
		{500, "7", answer{kind: refusedIt}},
		{502, "", answer{kind: unavailable}},
		{503, "Sat, 31 Jan 2026 12:00:30 GMT", answer{kind: unavailable, after: 30 * time.Second}},
		{503, "Sat, 31 Jan 2026 11:00:30 GMT", answer{kind: unavailable}},
		{503, "4294967295", answer{kind: unavailable, after: retryAfterLast}},
		{503, "99999999999999999999", answer{kind: unavailable}},
		{503, "soon", answer{kind: unavailable}},
		{504, "", answer{kind: unavailable}},
		{101, "", answer{kind: unavailable}},
	} {
		got := judge(c.status, c.after, now)
		got.text, got.took = "", false
		if got != c.want {
			t.Errorf("%d with Retry-After %q is %+v, want %+v", c.status, c.after, got, c.want)
		}
	}
	a := judge(400, "", now).withBody(strings.NewReader("no\r\nsuch\x00 tenant" + strings.Repeat("!", 1000)))
	if !strings.HasPrefix(a.text, "400 Bad Request: no such tenant!") || len(a.text) > answerText {
		t.Errorf("people read %q", a.text)
	}
}
