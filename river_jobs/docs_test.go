package riverjobs

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/ghostuser"
	"sexton/internal/groupdelete"
	"sexton/internal/groupschedule"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
	"sexton/internal/placeholder"
	"sexton/internal/retention"
)

// allJobs returns the jobs of all components.
func allJobs(t *testing.T) []Job {
	c := configuration(t, "SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_PLACEHOLDER_USERS__ENABLED=true",
		"SEXTON_ADJOURNED_GROUPS__ENABLED=true", "SEXTON_EXTERNAL_DIFFS__ENABLED=true",
		"SEXTON_RETENTION__ENABLED=true")
	jobs := Jobs(c)
	require.Len(t, jobs, 9)
	return jobs
}

func TestReferenceHasTheFactsOfEachKind(t *testing.T) {
	t.Parallel()
	text := readReference(t)
	jobs := allJobs(t)
	overview := text.table("kind")
	require.Len(t, overview, len(jobs), "number of kinds in the overview")
	for i, job := range jobs {
		require.Regexp(t, fmt.Sprintf(`^\[%s\]\([a-z-]+\.md#%s\)$`, job.Kind, job.Kind), overview[i][0])
		require.Equal(t, job.Summary, overview[i][1], job.Kind)

		facts := map[string]string{}
		for _, row := range text.section(t, job.Kind).list("Facts") {
			facts[row[0]] = row[1]
		}
		schedule, lease := "none: ", "none: "
		if !job.Inserted() {
			schedule, lease = "`"+job.Schedule+"`", "`"+job.LeaseKey("<database>")+"`"
			require.Equal(t, len(job.Args) == 0, facts["unique"] == "one", "%s: unique per argument", job.Kind)
		}
		if job.Kind == GroupDestroy {
			lease = "`groups/<id>`"
		}
		require.Contains(t, facts["schedule"], schedule, job.Kind)
		require.Contains(t, facts["lease"], lease, job.Kind)
		require.Regexp(t, fmt.Sprintf(`^%d\b`, job.MaxAttempts), facts["attempts"], job.Kind)
		for name, kind := range job.Args {
			require.Contains(t, facts["arguments"], fmt.Sprintf("`%s` (%s", name, kind), job.Kind)
		}
		require.Len(t, codeSpans(facts["arguments"]), len(job.Args), "%s: %s", job.Kind, facts["arguments"])
		if job.MaxWorkers > 0 {
			require.Contains(t, facts["limits"], fmt.Sprintf("%d in parallel in each process", job.MaxWorkers), job.Kind)
		}
		for _, fact := range []string{"woken by", "pace", "waits", "events"} {
			require.NotEmpty(t, facts[fact], "%s: %s", job.Kind, fact)
		}
	}
}

func TestReferenceHasEachStatistic(t *testing.T) {
	t.Parallel()
	text := readReference(t)
	statistics := map[string]any{
		LooseForeignKeys: loosefk.Stats{}, GhostUsers: ghostuser.Stats{}, PlaceholderCleanup: placeholder.Stats{},
		DeletePlaceholder: placeholder.Verdict{}, AdjournedGroupDeletion: groupschedule.Stats{},
		GroupDestroy:          groupdelete.Stats{},
		ScheduleExternalDiffs: scheduleStats{}, MigrateExternalDiff: moveStats{}, RetentionCleanup: retention.Stats{},
	}
	jobs := allJobs(t)
	common := namesIn(text.list("Statistics of several kinds"))
	require.NotEmpty(t, common)
	for _, job := range jobs {
		require.Contains(t, statistics, job.Kind, "the statistics of %s are not checked", job.Kind)
		want := slices.DeleteFunc(jsonKeys(reflect.TypeOf(statistics[job.Kind]), ""),
			func(key string) bool { return slices.Contains(common, key) })
		require.ElementsMatch(t, want, namesIn(text.section(t, job.Kind).list("Statistics")), "statistics of %s",
			job.Kind)
	}
	require.ElementsMatch(t, jsonKeys(reflect.TypeFor[jobrun.Report](), ""), namesIn(text.list("Keys of a report")))
	require.ElementsMatch(t, jsonKeys(reflect.TypeFor[batch.FaultCounts](), ""), namesIn(text.list("Keys of an error")))
}

// The documentation of the outbox lists each event that a page of a job mentions.
func TestReferenceHasTheEventsOfTheOutbox(t *testing.T) {
	t.Parallel()
	page := pgtest.Must(os.ReadFile("../docs/sql.md"))(t)
	kinds := namesIn(reference(page).section(t, "sexton.events, the outbox").list("Kinds"))
	text := readReference(t)
	count := 0
	for _, job := range allJobs(t) {
		for _, row := range text.section(t, job.Kind).list("Facts") {
			if row[0] != "events" {
				continue
			}
			for _, name := range codeSpans(row[1]) {
				if name != "event" { // "event" is a key of definitions, not the name of an event.
					require.Contains(t, kinds, name, job.Kind)
					count++
				}
			}
		}
	}
	require.GreaterOrEqual(t, count, 10)
}

// jsonKeys returns the keys of a type's JSON object. Keys of nested objects are prefixed
// with the outer key and a dot. The keys of errors are not included, because the
// documentation describes them once.
func jsonKeys(of reflect.Type, prefix string) []string {
	var found []string
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			found = append(found, jsonKeys(field.Type, prefix)...)
			continue
		case name == "-" || !field.IsExported():
			continue
		}
		found = append(found, prefix+name)
		inner, dot := field.Type, "."
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			if inner.Kind() == reflect.Slice {
				dot = "[]."
			}
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[batch.FaultCounts]() &&
			inner != reflect.TypeFor[time.Time]() {
			found = append(found, jsonKeys(inner, prefix+name+dot)...)
		}
	}
	return found
}

// reference is the text of docs/jobs.md and of the jobs' pages, or a section of it.
type reference string

func readReference(t *testing.T) reference {
	var text strings.Builder
	for _, name := range []string{
		"jobs", "loose-foreign-keys", "users", "placeholder-users", "groups",
		"external-diffs", "retention",
	} {
		text.Write(pgtest.Must(os.ReadFile("../docs/" + name + ".md"))(t))
		text.WriteString("\n## \n")
	}
	return reference(text.String())
}

// section returns the text of the section with the given heading.
func (r reference) section(t *testing.T, heading string) reference {
	_, rest, found := strings.Cut(string(r), "\n## "+heading+"\n")
	require.True(t, found, "there is no section %q", heading)
	section, _, _ := strings.Cut(rest, "\n## ")
	return reference(section)
}

// table returns the rows of the table whose first column has the given title, each as a
// list of cells.
func (r reference) table(title string) [][]string {
	_, rest, found := strings.Cut(string(r), "\n| "+title+" |")
	if !found {
		return nil
	}
	var rows [][]string
	for _, line := range strings.Split(rest, "\n")[2:] {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// list returns the items of the list with the given title, each as name and description.
func (r reference) list(title string) [][]string {
	_, rest, found := strings.Cut(string(r), "\n"+title+":\n\n")
	if !found {
		return nil
	}
	var items [][]string
	for line := range strings.SplitSeq(rest, "\n") {
		item, listed := strings.CutPrefix(line, "- ")
		if !listed {
			break
		}
		name, meaning, _ := strings.Cut(item, ": ")
		items = append(items, []string{name, meaning})
	}
	return items
}

// codeSpans returns the texts in backticks.
func codeSpans(text string) []string {
	var found []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

// namesIn returns the names in backticks in the first column of rows or items.
func namesIn(rows [][]string) []string {
	var names []string
	for _, row := range rows {
		names = append(names, codeSpans(row[0])...)
	}
	return names
}
