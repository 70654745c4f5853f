package bench

import (
	"os"
	"testing"
	"time"
)

func TestStatOfACommandWithAnAwkwardName(t *testing.T) {
	used, rss, err := parseStat([]byte("42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 123 99999 1000 184\n"))
	if err != nil || used != 2*time.Second || rss != 1000*int64(os.Getpagesize()) {
		t.Errorf("%v, %d, %v", used, rss, err)
	}
	for _, wrong := range []string{"", "42", "42 (a) S 1 2", "42 (a) S 1 2 3 4 5 6 7 8 9 10 x 50 0 0 20 0 9 0 123 99999 1000 184"} {
		if _, _, err := parseStat([]byte(wrong)); err == nil {
			t.Errorf("%q passes", wrong)
		}
	}
}
