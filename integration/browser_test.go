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

// browserWait is the timeout of each action and condition in the browser.
const browserWait = time.Minute

// browserData creates an application with children that are deleted slowly. browserPast
// inserts an hour of samples, a failed tombstone, a user whose deletion failed, a
// discarded job, and runs.
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

// startBrowserSite creates the site, starts a worker and returns the page's address.
func startBrowserSite(t *testing.T) (s workSite, address string) {
	s = build(t).site(t, pgtest.New(t).URL, mainSetup(`
ghost_users: {enabled: true, schedule: "0 0 1 1 *"}
http: {listen: "127.0.0.1:0", read_only: false}
`, exampleapp.Schema()+browserData, browserPast).withDefinitions("invoices: [{table: tenants, column: tenant_id, on_delete: async_delete}]\n"))
	return s, "http://" + s.startWorker(t).httpAddress(t)
}

// browser is a browser tab that records errors and requests to other addresses.
type browser struct {
	ctx    context.Context //nolint:containedctx // chromedp keeps the tab in it
	mu     sync.Mutex
	faults []string
}

// openBrowser starts a headless browser. It records requests to addresses other than the
// given one, JavaScript errors and console warnings as faults.
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
				b.addFault("request to " + e.Request.URL)
			}
		case *runtime.EventExceptionThrown:
			b.addFault(fmt.Sprintf("exception: %+v", e.ExceptionDetails))
		case *runtime.EventConsoleAPICalled:
			if e.Type == "error" || e.Type == "warning" {
				b.addFault(fmt.Sprintf("console: %+v", e.Args))
			}
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == "error" {
				b.addFault("log: " + e.Entry.Text + " " + e.Entry.URL)
			}
		}
	}))
	b.run(t, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		if _, err := cdp.Call(ctx, tab, network.Enable, network.EnableParams{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, tab, cdplog.Enable, cdp.Empty{})
		return err
	}))
	return b
}

func (b *browser) addFault(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, text)
}

// run runs actions within browserWait.
func (b *browser) run(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	ctx, cancel := context.WithTimeout(b.ctx, browserWait)
	defer cancel()
	require.NoError(t, chromedp.Do(ctx, actions...))
}

// wait waits until a JavaScript expression is true in the page.
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
			require.Failf(t, "timed out", "waiting for %s (last error: %v) in a page with\n%s", what, err, text)
		}
	}
}

func (b *browser) text(t *testing.T) string {
	return pgtest.Must(chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText")))(t)
}

// setView sets the width and the color scheme.
func (b *browser) setView(t *testing.T, width int64, colors string) {
	b.run(t, chromedp.EmulateViewport(width, 900), chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, cdpemulation.SetEmulatedMedia, cdpemulation.SetEmulatedMediaParams{
			Features: []*cdpemulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: colors},
				{Name: "prefers-reduced-motion", Value: "reduce"},
			},
		})
		return err
	}))
}

// cardNumber is a JavaScript expression for the number of pending tombstones that the
// page shows.
const cardNumber = `document.querySelector('[data-table="loose_foreign_keys_deleted_records"] .n')?.textContent`

// TestBrowser operates the page in a browser like a user. Its screenshots are artifacts:
// go test -artifacts -outputdir DIR.
func TestBrowser(t *testing.T) {
	t.Parallel()
	s, address := startBrowserSite(t)
	b := openBrowser(t, address)
	b.setView(t, 1280, "light")
	b.run(t, chromedp.Navigate(address+"/"))
	b.wait(t, "the state to be shown", `document.querySelector("h1").textContent.trim() !== ""`)
	b.wait(t, "the chart to be drawn",
		`document.querySelector("#history canvas") && Number(document.querySelector("#history").dataset.drawn) > 100`)
	b.wait(t, "two lines in the legend", `document.querySelectorAll("#chart-legend li").length === 2`)
	b.testChart(t)
	b.checkViews(t, address, "failing", "/", "/failures", "/jobs/"+kind)
	reader := s.startWorker(t, "SEXTON_HTTP__READ_ONLY=true")
	readOnly := "http://" + reader.httpAddress(t)
	openBrowser(t, readOnly).checkViews(t, readOnly, "read-only", "/")
	reader.stop(t)
	b.testPause(t, s)
	b.testRetry(t, s)
	b.testProgress(t, s)
	b.checkViews(t, address, "empty", "/")
	b.testRiver(t, s, address)
	b.testOutage(t, s, address)
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.faults, "console errors, and requests to other origins")
}

// checkViews opens pages in all widths and color schemes, takes screenshots and runs axe
// on each view.
func (b *browser) checkViews(t *testing.T, address, name string, paths ...string) {
	for _, colors := range []string{"light", "dark"} {
		for _, width := range []int64{390, 768, 1280} {
			b.setView(t, width, colors)
			for i, path := range paths {
				b.run(t, chromedp.Navigate(address+path))
				b.wait(t, "the page to be loaded", `document.querySelector("#rest section")`)
				if path == "/" {
					b.wait(t, "the chart to be drawn",
						`document.querySelector("#history canvas") && document.querySelectorAll("#chart-legend li").length > 0`)
				}
				b.wait(t, "the content to fit the width of the screen",
					`document.documentElement.scrollWidth <= window.innerWidth`)
				b.takeScreenshot(t, fmt.Sprintf("%s-%d-%d-%s", name, i, width, colors))
				b.testAccess(t)
				if width == 390 && path == "/" {
					b.wait(t, "the jobs to be near the top",
						`document.getElementById("jobs").getBoundingClientRect().top + scrollY < 1400`)
				}
			}
		}
	}
	b.setView(t, 1280, "light")
	b.run(t, chromedp.Navigate(address+"/"))
	b.wait(t, "the chart to be drawn", `document.querySelector("#history canvas")`)
}

// testOutage checks the page while the database refuses connections.
func (b *browser) testOutage(t *testing.T, s workSite, address string) {
	adminURL := pgtest.Must(url.Parse(s.url))(t)
	name := strings.TrimPrefix(adminURL.Path, "/")
	adminURL.Path = "/postgres"
	admin := pgtest.Connect(t, adminURL.String())
	b.run(t, chromedp.Navigate(address+"/"))
	pgtest.Exec(t, admin, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS false", pgx.Identifier{name}.Sanitize()))
	pgtest.Exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
	b.wait(t, "the page to show the outage", `document.querySelector("h1").textContent === "The state cannot be read"`)
	b.checkViews(t, address, "down", "/")
	pgtest.Exec(t, admin, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS true", pgx.Identifier{name}.Sanitize()))
}

// testAccess checks the page's accessibility with axe, an npm module in NODE_PATH.
func (b *browser) testAccess(t *testing.T) {
	axe := pgtest.Must(os.ReadFile(filepath.Join(os.Getenv("NODE_PATH"), "axe-core", "axe.min.js")))(t)
	b.run(t, chromedp.Evaluate[chromedp.Void](string(axe)+";void 0"))
	b.run(t, chromedp.Evaluate[chromedp.Void](`window.found = null; axe.run(document, {resultTypes: ["violations"]}).then((all) => {
		window.found = all.violations.map((each) => each.id + ": " + each.help + ": " + each.nodes.map((node) => node.html.slice(0, 160) + " " +
			node.any.concat(node.all).map((check) => check.message).join("; ")).join(" | "));
	}); void 0`))
	b.wait(t, "axe to finish", "window.found")
	require.Empty(t, pgtest.Must(chromedp.Run(b.ctx, chromedp.Evaluate[[]string]("window.found")))(t))
}

// testChart selects the other periods and measures of the chart.
func (b *browser) testChart(t *testing.T) {
	for _, choice := range []string{"24h", "7d", "1h"} {
		b.run(t, chromedp.Evaluate[chromedp.Void](`document.querySelector("input[name=span][value='`+choice+
			`']").click()`))
		b.wait(t, "the period "+choice, `document.querySelector("#history canvas")`)
	}
	b.run(t, chromedp.Evaluate[chromedp.Void](`document.querySelector("input[name=measure][value=oldest]").click()`))
	b.wait(t, "ages in the legend", `/ s|–/.test(document.querySelector("#chart-legend b").textContent)`)
	b.run(t, chromedp.Evaluate[chromedp.Void](`document.querySelector("input[name=measure][value=rate]").click()`))
	b.wait(t, "rates in the legend", `/[/]s$|–/.test(document.querySelector("#chart-legend b").textContent)`)
	b.run(t, chromedp.Evaluate[chromedp.Void](`document.querySelector("input[name=measure][value=pending]").click(); document.querySelector("input[name=log]").click()`))
	b.run(t, chromedp.Evaluate[chromedp.Void](`document.querySelector("#chart-legend button").click()`))
	b.wait(t, "one line to be hidden",
		`document.querySelectorAll("#chart-legend button[aria-pressed=false]").length === 1`)
	b.wait(t, "the table of values",
		`document.querySelectorAll("#chart-table tbody tr").length > 8 && document.querySelectorAll("#chart-table thead th").length === 3`)
}

// testPause pauses a job by keyboard, checks that a deletion is shown, and resumes the
// job.
func (b *browser) testPause(t *testing.T, s workSite) {
	before := b.readCardNumber(t)
	b.run(t,
		chromedp.Focus(chromedp.ID("pause-button-"+kind)), chromedp.KeyEvent("\r"),
		chromedp.WaitVisible(chromedp.ID("reason-"+kind)),
	)
	b.wait(t, "the reason field to have the focus", `document.activeElement.id === "reason-`+kind+`"`)
	b.run(t, chromedp.KeyEvent("nightly backup"))
	// The typed text must still be there after two polls of the page.
	polls := `performance.getEntriesByType("resource").filter((each) => each.name.endsWith("/live")).length`
	seen := pgtest.Must(chromedp.Run(b.ctx, chromedp.Evaluate[int](polls)))(t)
	b.wait(t, "two polls of the page", fmt.Sprintf("%s >= %d", polls, seen+2))
	b.wait(t, "the typed text to be kept", `document.activeElement.value === "nightly backup"`)
	b.run(t, chromedp.KeyEvent("\r"))
	b.wait(t, "the page to show the pause", `/Paused by page since .*: nightly backup/.test(document.getElementById("job-`+kind+
		`").innerText)`)
	b.wait(t, "the notice of the pause", `document.getElementById("notice").innerText.includes("Paused `+kind+`")`)
	b.takeScreenshot(t, "paused-1280-light")
	require.EqualValues(t, 1,
		s.count(t, "SELECT count(*) FROM sexton.river_queue WHERE name = $1 AND paused_at IS NOT NULL", kind))
	require.EqualValues(t, 1,
		s.count(t, "SELECT count(*) FROM sexton.audit WHERE actor = 'page' AND action = 'pause' AND target = $1 AND reason = 'nightly backup'", kind))

	s.exec(t, "DELETE FROM tenants WHERE id <= 3")
	b.wait(t, "the page to show the deletion", fmt.Sprintf("%s === %q", cardNumber, fmt.Sprint(before+3)))
	b.run(t, chromedp.Click(chromedp.ID("resume-"+kind)))
	b.wait(t, "the backlog to be processed", fmt.Sprintf("%s === %q", cardNumber, fmt.Sprint(before)))
	require.Zero(t, s.count(t, "SELECT count(*) FROM invoices WHERE tenant_id <= 3"))
	b.wait(t, "the pause button to reappear", `document.getElementById("pause-button-`+kind+`")`)
}

func (b *browser) readCardNumber(t *testing.T) (n int) {
	pgtest.Must(fmt.Sscan(pgtest.Must(chromedp.Run(b.ctx, chromedp.Evaluate[string](cardNumber)))(t), &n))(t)
	return n
}

// testRetry retries the failed tombstone, which has no children and must be processed.
func (b *browser) testRetry(t *testing.T, s workSite) {
	id := s.count(t, "SELECT id FROM loose_foreign_keys_deleted_records WHERE primary_key_value = 4711")
	button := fmt.Sprintf("retry-tombstones-main-%d", id)
	require.Contains(t, b.text(t), "violates foreign key constraint")
	b.run(t, chromedp.Click(chromedp.ID(button)))
	b.wait(t, "the notice of the retry", `document.getElementById("notice").innerText.includes("1 tombstone due now")`)
	s.wait(t, browserWait, "the tombstone to be processed",
		"NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
	b.wait(t, "the failure to disappear", `!document.getElementById("`+button+`")`)
	require.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM sexton.audit WHERE action = 'retry' AND target = $1",
		fmt.Sprintf("tombstones %d of main", id)))
}

// testProgress checks the progress of a run that takes some seconds.
func (b *browser) testProgress(t *testing.T, s workSite) {
	s.exec(t, "DELETE FROM tenants")
	b.wait(t, "the run to be shown with its rate and remaining time",
		`/Running for .*: [0-9,]+ rows for [0-9]+ tombstones, [0-9]+ per second, about .* left/.test(document.getElementById("job-`+kind+`").innerText)`)
	b.wait(t, "the progress bar",
		`document.querySelector("progress").value > 20 && document.querySelector("progress").max > 300`)
	for _, colors := range []string{"light", "dark"} {
		b.setView(t, 1280, colors)
		b.takeScreenshot(t, "working-1280-"+colors)
	}
	s.exec(t, "DROP TRIGGER slow ON invoices")
	b.wait(t, "the end of the run", fmt.Sprintf(`%s === "0" && document.querySelector("progress") === null`,
		cardNumber))
}

// testRiver opens River UI under its prefix.
func (b *browser) testRiver(t *testing.T, s workSite, address string) {
	b.setView(t, 1280, "light")
	b.run(t, chromedp.Click(chromedp.CSS(`nav a[href="/river/"]`)))
	b.wait(t, "River's list of jobs",
		`location.pathname.startsWith("/river/") && document.body.innerText.includes("Discarded")`)
	b.run(t, chromedp.Navigate(address+"/river/jobs?state=completed"))
	b.wait(t, "the completed jobs", `document.body.innerText.includes("`+kind+`")`)
	b.takeScreenshot(t, "river-1280-light")
	id := s.count(t, "SELECT min(id) FROM sexton.river_job WHERE state = 'discarded'")
	b.run(t, chromedp.Navigate(fmt.Sprintf("%s/river/jobs/%d", address, id)))
	b.wait(t, "the discarded job", `document.body.innerText.includes("connection reset by peer")`)
	require.NotContains(t, b.text(t), "personal data")
	b.run(t, chromedp.Navigate(address+"/river/queues"))
	b.wait(t, "River's queues", `document.body.innerText.includes("users_migrate_records_to_ghost_user_in_batches")`)
}

// takeScreenshot saves a screenshot of the whole page.
func (b *browser) takeScreenshot(t *testing.T, name string) {
	ctx, cancel := context.WithTimeout(b.ctx, browserWait)
	defer cancel()
	image := pgtest.Must(chromedp.Run(ctx, chromedp.FullScreenshot(100)))(t)
	require.True(t, slices.Contains([]string{"\x89PNG", "\xff\xd8\xff\xe0"}, string(image[:4])), "the screenshot must be a PNG or JPEG")
	require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), name+".png"), image, 0o600))
}
