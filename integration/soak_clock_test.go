//go:build soak

package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// wrongest is by how many seconds a worker's clock may be wrong, jumpsWithin the time within which it is set anew.
const (
	wrongest    = 3600
	jumpsWithin = 60
)

// skewGo is added to the standard library's package time for the workers of the soak: Go asks the kernel without the C library, so
// that nothing can be put between. The variable has by how many seconds the clock is wrong at first, for how many, and from then on.
const skewGo = `package time

import "syscall"

var skews = readSkews()

func readSkews() (s [3]int64) {
	text, _ := syscall.Getenv("SEXTON_SOAK_CLOCK")
	n, sign := 0, int64(1)
	for _, c := range []byte(text) {
		switch c {
		case '-':
			sign = -1
		case ',':
			n, sign = n+1, 1
		default:
			s[n] = 10*s[n] + sign*int64(c-'0')
		}
	}
	return s
}

func skew(mono int64) int64 {
	if mono-startNano < skews[1]*int64(Second) {
		return skews[0]
	}
	return skews[2]
}
`

// buildSkewed builds the program with a clock that the environment sets. The monotonic clock, and so each timer, stays as it is.
func buildSkewed(t *testing.T) program {
	t.Helper()
	goroot := pgtest.Must(exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output())(t)
	source, dir := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time"), t.TempDir()
	text := pgtest.Must(os.ReadFile(filepath.Join(source, "time.go")))(t)
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	require.Equal(t, 1, strings.Count(string(text), now), "this version of Go reads the clock in another way")
	replace := map[string]string{}
	for name, content := range map[string]string{"time.go": strings.Replace(string(text), now, now+"\tsec += skew(mono)\n", 1), "skew.go": skewGo} {
		replace[filepath.Join(source, name)] = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	overlay := pgtest.Must(json.Marshal(map[string]any{"Replace": replace}))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	p := program{path: filepath.Join(dir, "sexton")}
	command := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", p.path, "./cmd/worker")
	command.Dir = ".."
	out, err := command.CombinedOutput()
	require.NoError(t, err, "build the binary: %s", out)
	return p
}

// clock is a variable that has a worker's clock be wrong, and be set to another wrong time while it runs.
func clock(random *rand.Rand) string {
	wrong := func() int { return random.IntN(2*wrongest+1) - wrongest }
	return fmt.Sprintf("SEXTON_SOAK_CLOCK=%d,%d,%d", wrong(), random.IntN(jumpsWithin), wrong())
}
