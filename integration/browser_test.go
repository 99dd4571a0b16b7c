//go:build browser

package integration

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdpemulation "github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

// browserWait is how long a browser may take for any one thing.
const browserWait = time.Minute

// browserData is an application with children that take their time to go, and browserPast
// what has happened there: an hour of samples, runs, a tombstone and a user that failed,
// and a job of River's that was given up.
const browserData = `
INSERT INTO users (id, username, email, name) SELECT n, 'user' || n, n || '@example.com', 'User ' || n FROM generate_series(1, 9) AS n;
CREATE TABLE tenants (id bigint PRIMARY KEY);
CREATE TABLE invoices (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant_id bigint NOT NULL);
CREATE INDEX ON invoices (tenant_id);
INSERT INTO tenants SELECT generate_series(1, 400);
INSERT INTO invoices (tenant_id) SELECT n FROM generate_series(1, 400) AS n, generate_series(1, 8);
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.003); RETURN old; END';
CREATE TRIGGER slow BEFORE DELETE ON invoices FOR EACH ROW WHEN (old.tenant_id > 3) EXECUTE FUNCTION slow();`

const browserPast = `
INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, consume_after, cleanup_attempts, last_error)
VALUES ('public.tenants', 4711, now() + interval '20 minutes', 4, 'invoices: SQLSTATE 23503: update or delete on table "invoices" violates foreign key constraint on table "audit_log"');
INSERT INTO users_ghost_user_migrations (user_id, consume_after, attempts, last_error)
VALUES (9, now() + interval '25 minutes', 2, 'notes: SQLSTATE 55P03: canceling statement due to lock timeout (row locked by pid 4711 (psql) since ' || to_char(now() AT TIME ZONE 'UTC', 'HH24:MI:SS"Z"') || ')');
INSERT INTO sexton.river_job (kind, queue, args, state, max_attempts, attempt, scheduled_at, finalized_at, errors)
VALUES ('loose_foreign_keys_cleanup', 'loose_foreign_keys_cleanup', '{"database": "main", "hidden": "personal data"}', 'discarded', 3, 3, now(), now(),
	ARRAY[jsonb_build_object('at', now() - interval '9 minutes', 'attempt', 3, 'error', 'read backlog: connection reset by peer', 'trace', '')]);
INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome, changed, stats)
SELECT 'loose_foreign_keys_cleanup', 'main', 'worker-1:4711', at, at + interval '1.4 seconds', CASE n % 5 WHEN 2 THEN 'over_limit' ELSE 'done' END, true,
	jsonb_build_object('processed', 40 * n, 'delete_count_by_table', jsonb_build_object('invoices', 900 * n, 'notes', 310 * n, 'todos', 44 * n))
FROM generate_series(1, 6) AS n, LATERAL (SELECT now() - n * interval '7 minutes') AS past (at);
INSERT INTO sexton.samples
SELECT now() - n * interval '15 seconds', 'main', table_name, greatest(0, (peak * exp(0 - ((n - middle) / width) ^ 2) + noise * (1 + sin(n)))::int), false, 0,
	greatest(0, (peak / 9 * exp(0 - ((n - middle) / width) ^ 2))::int), n % 20 = 0
FROM generate_series(6, 238) AS n, (VALUES ('loose_foreign_keys_deleted_records', 1400, 120, 26.0, 12), ('users_ghost_user_migrations', 620, 60, 16.0, 5))
	AS shape (table_name, peak, middle, width, noise)`

// startBrowserSite makes the site and starts a worker on it. It returns the page's
// address.
func startBrowserSite(t *testing.T) (s workSite, address string) {
	s = build(t).site(t, pgtest.New(t).URL, onMain(`
ghost_users: {enabled: true, schedule: "0 0 1 1 *"}
http: {listen: "127.0.0.1:0", read_only: false}
`, exampleapp.Schema()+browserData, browserPast).defining("invoices: [{table: tenants, column: tenant_id, on_delete: async_delete}]\n"))
	return s, "http://" + s.started(t).httpAddress(t)
}

// browser is a tab that notes what should not happen.
type browser struct {
	ctx    context.Context //nolint:containedctx // chromedp keeps the tab in it
	mu     sync.Mutex
	faults []string
}

// openBrowser starts a browser without a window. Requests must stay at the address.
func openBrowser(t *testing.T, address string) *browser {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	require.NotEmpty(t, path, "chromium is needed; Debian: apt-get install chromium")
	allocated, free := chromedp.NewExecAllocator(t.Context(),
		append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path))...)
	t.Cleanup(free)
	tab, leave := chromedp.NewContext(allocated)
	t.Cleanup(leave)
	b := &browser{ctx: tab}
	require.NoError(t, chromedp.Listen(tab, func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, address+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
				b.fault("request to " + e.Request.URL)
			}
		case *runtime.EventExceptionThrown:
			b.fault(fmt.Sprintf("exception: %+v", e.ExceptionDetails))
		case *runtime.EventConsoleAPICalled:
			if e.Type == "error" || e.Type == "warning" {
				b.fault(fmt.Sprintf("console: %+v", e.Args))
			}
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == "error" {
				b.fault("log: " + e.Entry.Text + " " + e.Entry.URL)
			}
		}
	}))
	b.do(t, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		if _, err := cdp.Call(ctx, tab, network.Enable, network.EnableParams{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, tab, cdplog.Enable, cdp.Empty{})
		return err
	}))
	return b
}

func (b *browser) fault(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, text)
}

// do runs actions, within the time for each.
func (b *browser) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	ctx, cancel := context.WithTimeout(b.ctx, browserWait)
	defer cancel()
	require.NoError(t, chromedp.Do(ctx, actions...))
}

// wait waits until an expression holds in the page.
func (b *browser) wait(t *testing.T, what, expression string) {
	ctx, cancel := context.WithTimeout(b.ctx, browserWait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err == nil && holds {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			require.Failf(t, "waited in vain", "for %s (last error: %v) in a page with\n%s", what, err, text)
		}
	}
}

func (b *browser) text(t *testing.T) string {
	return pgtest.Must(chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText")))(t)
}

// look sets the width and the colours.
func (b *browser) look(t *testing.T, width int64, colours string) {
	b.do(t, chromedp.EmulateViewport(width, 900), chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, cdpemulation.SetEmulatedMedia, cdpemulation.SetEmulatedMediaParams{
			Features: []*cdpemulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: colours},
				{Name: "prefers-reduced-motion", Value: "reduce"},
			},
		})
		return err
	}))
}

// cardNumber is the number on the card, by JavaScript.
const cardNumber = `document.querySelector('[data-table="loose_foreign_keys_deleted_records"] .n')?.textContent`

// TestBrowser looks at the page as people do. Its screenshots are artifacts: go test
// -artifacts -outputdir DIR.
func TestBrowser(t *testing.T) {
	t.Parallel()
	s, address := startBrowserSite(t)
	b := openBrowser(t, address)
	b.look(t, 1280, "light")
	b.do(t, chromedp.Navigate(address+"/"))
	b.wait(t, "the state", `document.querySelector("h1").textContent.trim() !== ""`)
	b.wait(t, "the chart to be drawn",
		`document.querySelector("#history canvas") && Number(document.querySelector("#history").dataset.drawn) > 100`)
	b.wait(t, "two lines in it", `document.querySelectorAll("#chart-legend li").length === 2`)
	b.testChart(t)
	b.everyLook(t, address, "failing", "/", "/failures", "/jobs/"+kind)
	reader := s.started(t, "SEXTON_HTTP__READ_ONLY=true")
	readOnly := "http://" + reader.httpAddress(t)
	openBrowser(t, readOnly).everyLook(t, readOnly, "read-only", "/")
	reader.stop(t)
	b.testPause(t, s)
	b.testRetry(t, s)
	b.testProgress(t, s)
	b.everyLook(t, address, "empty", "/")
	b.testRiver(t, s, address)
	b.testOutage(t, s, address)
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.faults, "errors in the console, and requests that leave the origin")
}

// everyLook keeps pictures of addresses in all widths and colours, and has axe look at
// them.
func (b *browser) everyLook(t *testing.T, address, name string, paths ...string) {
	for _, colours := range []string{"light", "dark"} {
		for _, width := range []int64{390, 768, 1280} {
			b.look(t, width, colours)
			for i, path := range paths {
				b.do(t, chromedp.Navigate(address+path))
				b.wait(t, "the page", `document.querySelector("#rest section")`)
				if path == "/" {
					b.wait(t, "the chart to be drawn",
						`document.querySelector("#history canvas") && document.querySelectorAll("#chart-legend li").length > 0`)
				}
				b.wait(t, "nothing to be wider than the screen",
					`document.documentElement.scrollWidth <= window.innerWidth`)
				b.shoot(t, fmt.Sprintf("%s-%d-%d-%s", name, i, width, colours))
				b.testAccess(t)
				if width == 390 && path == "/" {
					b.wait(t, "the jobs near the top",
						`document.getElementById("jobs").getBoundingClientRect().top + scrollY < 1400`)
				}
			}
		}
	}
	b.look(t, 1280, "light")
	b.do(t, chromedp.Navigate(address+"/"))
	b.wait(t, "the chart to be drawn", `document.querySelector("#history canvas")`)
}

// testOutage looks at the page while the database refuses connections.
func (b *browser) testOutage(t *testing.T, s workSite, address string) {
	elsewhere := pgtest.Must(url.Parse(s.url))(t)
	name := strings.TrimPrefix(elsewhere.Path, "/")
	elsewhere.Path = "/postgres"
	admin := pgtest.Connect(t, elsewhere.String())
	b.do(t, chromedp.Navigate(address+"/"))
	pgtest.Exec(t, admin, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS false", pgx.Identifier{name}.Sanitize()))
	pgtest.Exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
	b.wait(t, "the outage to show", `document.querySelector("h1").textContent === "The state cannot be read"`)
	b.everyLook(t, address, "down", "/")
	pgtest.Exec(t, admin, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS true", pgx.Identifier{name}.Sanitize()))
}

// testAccess has axe look at the page. It is a module of npm: NODE_PATH says where.
func (b *browser) testAccess(t *testing.T) {
	axe := pgtest.Must(os.ReadFile(filepath.Join(os.Getenv("NODE_PATH"), "axe-core", "axe.min.js")))(t)
	b.do(t, chromedp.Evaluate[chromedp.Void](string(axe)+";void 0"))
	b.do(t, chromedp.Evaluate[chromedp.Void](`window.found = null; axe.run(document, {resultTypes: ["violations"]}).then((all) => {
		window.found = all.violations.map((each) => each.id + ": " + each.help + ": " + each.nodes.map((node) => node.html.slice(0, 160) + " " +
			node.any.concat(node.all).map((check) => check.message).join("; ")).join(" | "));
	}); void 0`))
	b.wait(t, "axe to be through", "window.found")
	require.Empty(t, pgtest.Must(chromedp.Run(b.ctx, chromedp.Evaluate[[]string]("window.found")))(t))
}

// testChart draws other stretches and the other measure.
func (b *browser) testChart(t *testing.T) {
	for _, choice := range []string{"24h", "7d", "1h"} {
		b.do(t, chromedp.Evaluate[chromedp.Void](`document.querySelector("input[name=span][value='`+choice+
			`']").click()`))
		b.wait(t, "the stretch "+choice, `document.querySelector("#history canvas")`)
	}
	b.do(t, chromedp.Evaluate[chromedp.Void](`document.querySelector("input[name=measure][value=oldest]").click()`))
	b.wait(t, "ages in the legend", `/ s|–/.test(document.querySelector("#chart-legend b").textContent)`)
	b.do(t, chromedp.Evaluate[chromedp.Void](`document.querySelector("input[name=measure][value=rate]").click()`))
	b.wait(t, "rates in the legend", `/[/]s$|–/.test(document.querySelector("#chart-legend b").textContent)`)
	b.do(t, chromedp.Evaluate[chromedp.Void](`document.querySelector("input[name=measure][value=pending]").click(); document.querySelector("input[name=log]").click()`))
	b.do(t, chromedp.Evaluate[chromedp.Void](`document.querySelector("#chart-legend button").click()`))
	b.wait(t, "one line to be left out",
		`document.querySelectorAll("#chart-legend button[aria-pressed=false]").length === 1`)
	b.wait(t, "the values in a table",
		`document.querySelectorAll("#chart-table tbody tr").length > 8 && document.querySelectorAll("#chart-table thead th").length === 3`)
}

// testPause pauses by keyboard, sees a deletion arrive, and resumes.
func (b *browser) testPause(t *testing.T, s workSite) {
	before := b.number(t)
	b.do(t,
		chromedp.Focus(chromedp.ID("pause-button-"+kind)), chromedp.KeyEvent("\r"),
		chromedp.WaitVisible(chromedp.ID("reason-"+kind)),
	)
	b.wait(t, "the field to have the focus", `document.activeElement.id === "reason-`+kind+`"`)
	b.do(t, chromedp.KeyEvent("nightly backup"))
	// A poll or two later what has been typed is still there.
	polls := `performance.getEntriesByType("resource").filter((each) => each.name.endsWith("/live")).length`
	seen := pgtest.Must(chromedp.Run(b.ctx, chromedp.Evaluate[int](polls)))(t)
	b.wait(t, "the page to ask twice", fmt.Sprintf("%s >= %d", polls, seen+2))
	b.wait(t, "what was typed to stay", `document.activeElement.value === "nightly backup"`)
	b.do(t, chromedp.KeyEvent("\r"))
	b.wait(t, "the pause to show", `/Paused by page since .*: nightly backup/.test(document.getElementById("job-`+kind+
		`").innerText)`)
	b.wait(t, "what came of it", `document.getElementById("notice").innerText.includes("Paused `+kind+`")`)
	b.shoot(t, "paused-1280-light")
	require.EqualValues(t, 1,
		s.count(t, "SELECT count(*) FROM sexton.river_queue WHERE name = $1 AND paused_at IS NOT NULL", kind))
	require.EqualValues(t, 1,
		s.count(t, "SELECT count(*) FROM sexton.audit WHERE actor = 'page' AND action = 'pause' AND target = $1 AND reason = 'nightly backup'", kind))

	s.exec(t, "DELETE FROM tenants WHERE id <= 3")
	b.wait(t, "the deletion to show", fmt.Sprintf("%s === %q", cardNumber, fmt.Sprint(before+3)))
	b.do(t, chromedp.Click(chromedp.ID("resume-"+kind)))
	b.wait(t, "the backlog to be worked off", fmt.Sprintf("%s === %q", cardNumber, fmt.Sprint(before)))
	require.Zero(t, s.count(t, "SELECT count(*) FROM invoices WHERE tenant_id <= 3"))
	b.wait(t, "the button to be back", `document.getElementById("pause-button-`+kind+`")`)
}

func (b *browser) number(t *testing.T) (n int) {
	pgtest.Must(fmt.Sscan(pgtest.Must(chromedp.Run(b.ctx, chromedp.Evaluate[string](cardNumber)))(t), &n))(t)
	return n
}

// testRetry has the failed tombstone tried again, which finds no children and goes.
func (b *browser) testRetry(t *testing.T, s workSite) {
	id := s.count(t, "SELECT id FROM loose_foreign_keys_deleted_records WHERE primary_key_value = 4711")
	button := fmt.Sprintf("retry-tombstones-main-%d", id)
	require.Contains(t, b.text(t), "violates foreign key constraint")
	b.do(t, chromedp.Click(chromedp.ID(button)))
	b.wait(t, "what came of it", `document.getElementById("notice").innerText.includes("1 tombstone due now")`)
	s.wait(t, browserWait, "the tombstone to be worked off",
		"NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
	b.wait(t, "the failure to be gone", `!document.getElementById("`+button+`")`)
	require.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM sexton.audit WHERE action = 'retry' AND target = $1",
		fmt.Sprintf("tombstones %d of main", id)))
}

// testProgress follows a pass that takes a while.
func (b *browser) testProgress(t *testing.T, s workSite) {
	s.exec(t, "DELETE FROM tenants")
	b.wait(t, "the pass to show with its rate and what is left",
		`/Running for .*: [0-9,]+ rows for [0-9]+ tombstones, [0-9]+ per second, about .* left/.test(document.getElementById("job-`+kind+`").innerText)`)
	b.wait(t, "the progress",
		`document.querySelector("progress").value > 20 && document.querySelector("progress").max > 300`)
	for _, colours := range []string{"light", "dark"} {
		b.look(t, 1280, colours)
		b.shoot(t, "working-1280-"+colours)
	}
	s.exec(t, "DROP TRIGGER slow ON invoices")
	b.wait(t, "the end of the pass", fmt.Sprintf(`%s === "0" && document.querySelector("progress") === null`,
		cardNumber))
}

// testRiver opens River's pages under their prefix.
func (b *browser) testRiver(t *testing.T, s workSite, address string) {
	b.look(t, 1280, "light")
	b.do(t, chromedp.Click(chromedp.CSS(`nav a[href="/river/"]`)))
	b.wait(t, "River's list of jobs",
		`location.pathname.startsWith("/river/") && document.body.innerText.includes("Discarded")`)
	b.do(t, chromedp.Navigate(address+"/river/jobs?state=completed"))
	b.wait(t, "the jobs that ended", `document.body.innerText.includes("`+kind+`")`)
	b.shoot(t, "river-1280-light")
	id := s.count(t, "SELECT min(id) FROM sexton.river_job WHERE state = 'discarded'")
	b.do(t, chromedp.Navigate(fmt.Sprintf("%s/river/jobs/%d", address, id)))
	b.wait(t, "one job", `document.body.innerText.includes("connection reset by peer")`)
	require.NotContains(t, b.text(t), "personal data")
	b.do(t, chromedp.Navigate(address+"/river/queues"))
	b.wait(t, "River's queues", `document.body.innerText.includes("users_migrate_records_to_ghost_user_in_batches")`)
}

// shoot keeps a picture of the whole page.
func (b *browser) shoot(t *testing.T, name string) {
	ctx, cancel := context.WithTimeout(b.ctx, browserWait)
	defer cancel()
	picture := pgtest.Must(chromedp.Run(ctx, chromedp.FullScreenshot(100)))(t)
	require.True(t, slices.Contains([]string{"\x89PNG", "\xff\xd8\xff\xe0"}, string(picture[:4])), "a picture")
	require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), name+".png"), picture, 0o600))
}
