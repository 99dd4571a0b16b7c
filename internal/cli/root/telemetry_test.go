package root_test

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"sexton/internal/cli/clitest"
)

// receiver is an HTTP server that receives traces as an OpenTelemetry collector does.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	requests int
	services map[string]bool
	spans    map[string]*traces.Span // The keys are the hexadecimal span IDs.
	changed  chan struct{}
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{services: map[string]bool{}, spans: map[string]*traces.Span{}, changed: make(chan struct{}, 1)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		var sent collector.ExportTraceServiceRequest
		err := proto.Unmarshal(body, &sent)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests++
		if err != nil || request.URL.Path != "/v1/traces" {
			return
		}
		for _, resource := range sent.ResourceSpans {
			for _, attribute := range resource.Resource.Attributes {
				if attribute.Key == "service.name" {
					r.services[attribute.Value.GetStringValue()] = true
				}
			}
			for _, scope := range resource.ScopeSpans {
				for _, span := range scope.Spans {
					r.spans[hex.EncodeToString(span.SpanId)] = span
				}
			}
		}
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// paths returns the path of each span: the names of its ancestors and its own name,
// separated by " > ".
func (r *receiver) paths() (paths []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, span := range r.spans {
		path := span.Name
		for parent := r.spans[hex.EncodeToString(span.ParentSpanId)]; parent != nil; parent = r.spans[hex.EncodeToString(parent.ParentSpanId)] {
			path = parent.Name + " > " + path
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// If the OpenTelemetry variables name an endpoint, runs and batches are sent as spans.
// Otherwise nothing is sent.
func TestTraces(t *testing.T) {
	t.Parallel()
	s, to := clitest.Installed(t), newReceiver(t)
	program := func(environ []string, args ...string) (*exec.Cmd, *bytes.Buffer) {
		command, stderr := exec.CommandContext(t.Context(), os.Args[0], args...), &bytes.Buffer{}
		command.Env, command.Stderr = slices.Concat(s.Environ, []string{clitest.AsProgram}, environ), stderr
		return command, stderr
	}
	endpoint := "OTEL_EXPORTER_OTLP_ENDPOINT=" + to.URL
	for _, off := range [][]string{{}, {endpoint, "OTEL_SDK_DISABLED=true"}, {endpoint, "OTEL_TRACES_EXPORTER=none"}} {
		s.Exec("DELETE FROM projects WHERE id = (SELECT min(id) FROM projects)")
		command, stderr := program(off, "job", "run", clitest.Kind)
		require.NoError(t, command.Run(), stderr)
		require.Zero(t, to.requests, off)
	}
	command, stderr := program([]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, "job", "run", clitest.Kind)
	require.NoError(t, command.Run(), stderr)
	require.Contains(t, stderr.String(), "only the OpenTelemetry protocol http/protobuf is supported")
	require.Zero(t, to.requests)

	s.Exec("DELETE FROM projects WHERE id = (SELECT min(id) FROM projects)")
	command, stderr = program([]string{endpoint}, "job", "run", clitest.Kind)
	require.NoError(t, command.Run(), stderr)
	require.Contains(t, to.paths(), "run loose_foreign_keys_cleanup > batch start > DELETE")
	require.Equal(t, map[string]bool{"sexton": true}, to.services)
	for _, span := range to.spans {
		if strings.HasPrefix(span.Name, "run ") {
			require.Contains(t, span.String(), `"done"`)
		}
	}

	command, stderr = program([]string{
		endpoint, "OTEL_SERVICE_NAME=mine", "OTEL_BSP_SCHEDULE_DELAY=50",
		"SEXTON_HTTP__LISTEN=",
	}, "run")
	require.NoError(t, command.Start())
	s.Exec("DELETE FROM projects WHERE id = (SELECT min(id) FROM projects)")
	const job = "river.work/loose_foreign_keys_cleanup > run loose_foreign_keys_cleanup > batch start > DELETE"
	for !slices.Contains(to.paths(), job) {
		select {
		case <-to.changed:
		case <-t.Context().Done():
			require.FailNow(t, "the span was not sent", "%v %s", to.paths(), stderr)
		}
	}
	require.NoError(t, command.Process.Signal(syscall.SIGTERM))
	require.NoError(t, command.Wait(), stderr)
	require.True(t, to.services["mine"])
}
