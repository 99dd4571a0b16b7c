package integration

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// testRunReloads has a worker read its files again: broken ones leave it as it was, good ones are worked with.
func testRunReloads(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	w := s.started(t, loopback)
	address := w.httpAddress(t)
	failed := func(value string) {
		pgtest.WaitFor(t, "the metric", func(ctx context.Context) (bool, error) {
			_, body := send(ctx, t, http.MethodGet, address, "/metrics", nil)
			return strings.Contains(body, "\nsexton_reload_failed "+value+"\n"), nil
		})
	}
	failed("0")
	file := filepath.Join(s.dir, "loose_foreign_keys.yml")
	require.NoError(t, os.WriteFile(file, []byte("children: [\n"), 0o600))
	w.signal(t, syscall.SIGHUP)
	w.logged(t, `"msg":"configuration is not reloaded, the old one stays"`)
	require.Contains(t, w.log.String(), "loose_foreign_keys.yml:")
	failed("1")
	s.exec(t, "DELETE FROM parents WHERE id = 1")
	s.wait(t, stopLimit, "the old definitions to be worked with", noWork)

	require.NoError(t, os.WriteFile(file, []byte(gatedDefinitions), 0o600))
	w.signal(t, syscall.SIGHUP)
	pgtest.WaitFor(t, "the second start", func(context.Context) (bool, error) {
		return strings.Count(w.log.String(), `"msg":"worker started"`) == 2, nil
	})
	s.exec(t, "DELETE FROM parents WHERE id = 2")
	s.wait(t, stopLimit, "the new definitions to be worked with", noWork)
	w.stop(t)
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.leases WHERE expires_at > now()"), "no lease is left")
}

// testRunLosesAConnectionWhileItStarts has the server end a worker's session at its first beat.
func testRunLosesAConnectionWhileItStarts(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	s.exec(t, `CREATE SEQUENCE beats;
		CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			IF nextval('public.beats') < 3 THEN RAISE EXCEPTION 'terminating connection' USING ERRCODE = '57P01'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER lose BEFORE INSERT ON sexton.clients FOR EACH ROW EXECUTE FUNCTION lose()`)
	w := s.started(t)
	require.Contains(t, w.log.String(), `"msg":"database cannot be reached, trying again"`)
	w.stop(t)
}
