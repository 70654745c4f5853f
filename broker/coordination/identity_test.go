package coordination

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIdentityLivesAsLongAsItsVolume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data") // created if needed
	first, err := LoadIdentity(dir, "default/main")
	if err != nil {
		t.Fatal(err)
	}
	if len(first.ID) != 32 || first.Cluster != "default/main" {
		t.Fatalf("identity is %+v", first)
	}
	again, err := LoadIdentity(dir, "default/main")
	if err != nil || again != first {
		t.Fatalf("read again: %+v, %v; want %+v", again, err, first)
	}
	other, err := LoadIdentity(t.TempDir(), "default/main")
	if err != nil || other.ID == first.ID {
		t.Fatalf("another volume has %+v, %v", other, err)
	}

	_, err = LoadIdentity(dir, "default/other")
	if err == nil || !strings.Contains(err.Error(), "default/main") || !strings.Contains(err.Error(), "default/other") {
		t.Errorf("another cluster's volume: %v; want a refusal that names both", err)
	}
}

// TestAnIdentityIsWrittenAtomically: a crash during the write leaves the temporary file only.
func TestAnIdentityIsWrittenAtomically(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, identityFile+".tmp"), []byte(`{"v":1,"id":"ha`), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := LoadIdentity(dir, "default/main")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := LoadIdentity(dir, "default/main"); err != nil || again != first {
		t.Fatalf("read again: %+v, %v; want %+v", again, err, first)
	}
}

func TestAnUnreadableIdentityIsNeverReplaced(t *testing.T) {
	for _, content := range []string{"", "{", `{"v":2,"id":"a","cluster":"default/main"}`, `{"v":1,"id":"","cluster":"default/main"}`, `{"v":1,"id":"../x","cluster":"default/main"}`} {
		dir := t.TempDir()
		path := filepath.Join(dir, identityFile)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := LoadIdentity(dir, "default/main"); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q was read as %+v, %v; want an error that names the file", content, id, err)
		}
		if after, _ := os.ReadFile(path); string(after) != content {
			t.Errorf("%q was replaced by %q", content, after)
		}
	}
}
