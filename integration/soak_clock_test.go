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

// wrongest is by how many seconds a worker's clock may be wrong, jumpsWithin the time
// within which it is set anew.
const (
	wrongest    = 3600
	jumpsWithin = 60
)

// skewGo and skewAssembly are added to the program for the workers of the soak: they
// stand between Go and the function of the kernel that tells the time. The standard
// library stays as it is, as with a package time of its own everything would have to be
// compiled anew. The variable has by how many seconds the clock is wrong at first, for
// how many, and from then on.
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

// skewed returns the address of what stands between.
func skewed() uintptr

func init() {
	var first, then int64
	var seconds time.Duration
	if _, err := fmt.Sscanf(os.Getenv("SEXTON_SOAK_CLOCK"), "%d,%d,%d", &first, &seconds, &then); err != nil {
		return
	}
	if clock == 0 {
		panic("this kernel tells the time only by a system call")
	}
	skew, kernel = first, clock
	clock = skewed()
	time.AfterFunc(seconds*time.Second, func() { atomic.StoreInt64(&skew, then) })
}
`

// skewAssembly is called as the kernel's function is: the clock in DI, where the time
// goes in SI.
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

// buildSkewed builds the program with a clock that the environment sets. The monotonic
// clock, and so each timer, stays as it is.
func buildSkewed(t *testing.T) program {
	require.Equal(t, "linux/amd64", runtime.GOOS+"/"+runtime.GOARCH,
		"workers with a wrong clock are for this system only")
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

// clock is a variable that has a worker's clock be wrong, and be set to another wrong
// time while it runs.
func clock(random *rand.Rand) string {
	wrong := func() int { return random.IntN(2*wrongest+1) - wrongest }
	return fmt.Sprintf("SEXTON_SOAK_CLOCK=%d,%d,%d", wrong(), random.IntN(jumpsWithin), wrong())
}
