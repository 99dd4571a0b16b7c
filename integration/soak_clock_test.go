//go:build soak

package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// maxSkew is the maximum error of a worker's clock in seconds. maxJumpDelay is the number
// of seconds within which the clock is set to another error.
const (
	maxSkew      = 3600
	maxJumpDelay = 60
)

// skewGo and skewAssembly are compiled into the workers of the soak test. They intercept
// Go's call of the kernel's clock function. The standard library is unchanged, because a
// changed package time would require compiling everything again. SEXTON_SOAK_CLOCK
// contains the initial error in seconds, the number of seconds until the jump, and the
// error after it.
const skewGo = `package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname
)

//go:linkname clock runtime.vdsoClockgettimeSym
var clock uintptr

var kernel uintptr

var skew int64

// skewed returns the address of the intercepting function.
func skewed() uintptr

func init() {
	var first, then int64
	var seconds time.Duration
	if _, err := fmt.Sscanf(os.Getenv("SEXTON_SOAK_CLOCK"), "%d,%d,%d", &first, &seconds, &then); err != nil {
		return
	}
	if clock == 0 {
		panic("this kernel provides the time only by a system call")
	}
	skew, kernel = first, clock
	clock = skewed()
	time.AfterFunc(seconds*time.Second, func() { atomic.StoreInt64(&skew, then) })
}
`

// skewAssembly is called like the kernel's function: DI holds the clock, SI the address
// of the result.
const skewAssembly = `#include "textflag.h"

TEXT ·between(SB), NOSPLIT|NOFRAME, $0
	SUBQ $24, SP
	MOVQ DI, 0(SP)
	MOVQ SI, 8(SP)
	MOVQ ·kernel(SB), AX
	CALL AX
	MOVQ 8(SP), SI
	CMPL 0(SP), $0 // CLOCK_REALTIME
	JNE  done
	MOVQ ·skew(SB), CX
	ADDQ CX, 0(SI)
done:
	ADDQ $24, SP
	RET

TEXT ·skewed(SB), NOSPLIT, $0-8
	LEAQ ·between(SB), AX
	MOVQ AX, ret+0(FP)
	RET
`

// buildSkewed builds the program with a clock that SEXTON_SOAK_CLOCK sets. The monotonic
// clock is unchanged, and with it all timers.
func buildSkewed(t *testing.T) program {
	require.Equal(t, "linux/amd64", runtime.GOOS+"/"+runtime.GOARCH,
		"workers with a wrong clock need linux/amd64")
	source, dir := pgtest.Must(filepath.Abs("../cmd/worker"))(t), t.TempDir()
	replace := map[string]string{}
	for name, content := range map[string]string{"skew.go": skewGo, "skew_amd64.s": skewAssembly} {
		replace[filepath.Join(source, name)] = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	overlay := pgtest.Must(json.Marshal(map[string]any{"Replace": replace}))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	p := program{path: filepath.Join(dir, "sexton")}
	command := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o",
		p.path, "./cmd/worker")
	command.Dir = ".."
	out, err := command.CombinedOutput()
	require.NoError(t, err, "build the binary: %s", out)
	return p
}

// randomClock returns an environment variable that makes a worker's clock wrong and later
// changes the error.
func randomClock(random *rand.Rand) string {
	skew := func() int { return random.IntN(2*maxSkew+1) - maxSkew }
	return fmt.Sprintf("SEXTON_SOAK_CLOCK=%d,%d,%d", skew(), random.IntN(maxJumpDelay), skew())
}
