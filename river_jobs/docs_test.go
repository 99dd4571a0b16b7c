package riverjobs

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"sexton/internal/config"
	"sexton/internal/fault"
	"sexton/internal/ghostuser"
	"sexton/internal/groupdelete"
	"sexton/internal/groupschedule"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/placeholder"
	"sexton/internal/yamlfile"
)

// everyJob are the jobs with all components enabled.
func everyJob(t *testing.T) (*config.Config, []Job) {
	t.Helper()
	c := configuration(t, "SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_PLACEHOLDER_USERS__ENABLED=true",
		"SEXTON_ADJOURNED_GROUPS__ENABLED=true", "SEXTON_EXTERNAL_DIFFS__ENABLED=true")
	jobs := Jobs(c)
	require.Len(t, jobs, 8)
	return c, jobs
}

func TestReferenceHasTheFactsOfEachKind(t *testing.T) {
	t.Parallel()
	text := readReference(t)
	_, jobs := everyJob(t)
	overview := text.table("kind")
	require.Len(t, overview, len(jobs), "kinds in the overview")
	for i, job := range jobs {
		require.Equal(t, fmt.Sprintf("[%s](#%s)", job.Kind, job.Kind), overview[i][0])
		require.Equal(t, job.Summary, overview[i][2], job.Kind)

		facts := map[string]string{}
		for _, row := range text.section(t, job.Kind).table("fact") {
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
		require.Len(t, coded(facts["arguments"]), len(job.Args), "%s: %s", job.Kind, facts["arguments"])
		if job.MaxWorkers > 0 {
			require.Contains(t, facts["limits"], fmt.Sprintf("%d at once in each process", job.MaxWorkers), job.Kind)
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
		DeletePlaceholder: placeholder.Verdict{}, AdjournedGroupDeletion: groupschedule.Stats{}, GroupDestroy: groupdelete.Stats{},
		ScheduleExternalDiffs: scheduleStats{}, MigrateExternalDiff: moveStats{},
	}
	_, jobs := everyJob(t)
	for _, job := range jobs {
		require.Contains(t, statistics, job.Kind, "the statistics of %s are not checked", job.Kind)
		want := jsonKeys(reflect.TypeOf(statistics[job.Kind]), "")
		require.ElementsMatch(t, want, named(text.section(t, job.Kind).table("statistic")), "statistics of %s", job.Kind)
	}
	require.ElementsMatch(t, jsonKeys(reflect.TypeFor[jobrun.Report](), ""), named(text.table("key of a report")))
	require.ElementsMatch(t, jsonKeys(reflect.TypeFor[fault.Counts](), ""), named(text.table("key of an error")))
}

// An event has the same keys wherever it is described.
func TestReferenceHasTheEventsOfTheOutbox(t *testing.T) {
	t.Parallel()
	doors, err := os.ReadFile("../docs/sql.md")
	require.NoError(t, err)
	payloads := map[string][]string{}
	for _, row := range reference(doors).section(t, "sexton.events, the outbox").table("kind") {
		payloads[coded(row[0])[0]] = coded(row[1])
	}
	text := readReference(t)
	_, jobs := everyJob(t)
	told := 0
	for _, job := range jobs {
		for _, row := range text.section(t, job.Kind).table("fact") {
			if row[0] != "events" {
				continue
			}
			for _, event := range regexp.MustCompile("`(\\w+)` \\(([^)]*)\\)").FindAllStringSubmatch(row[1], -1) {
				// The values of the last one may follow it.
				keys, _, _ := strings.Cut(event[2], ":")
				// Not every job that writes an event knows all of its keys.
				require.NotEmpty(t, coded(keys), event[1])
				require.Subset(t, payloads[event[1]], coded(keys), "keys of %s in docs/sql.md and in docs/jobs.md", event[1])
				told++
			}
		}
	}
	require.GreaterOrEqual(t, told, 5)
}

// jsonKeys are the keys of a type's JSON object, with those of objects in it behind a dot. Errors are described once for all.
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
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[fault.Counts]() && inner != reflect.TypeFor[time.Time]() {
			found = append(found, jsonKeys(inner, prefix+name+dot)...)
		}
	}
	return found
}

// sections are the parts of the configuration that belong to kinds of jobs.
func sections() map[string][]string {
	return map[string][]string{
		"jobs": {"What all kinds have in common"}, "loose_foreign_keys": {LooseForeignKeys}, "ghost_users": {GhostUsers}, "placeholder_users": {PlaceholderCleanup, DeletePlaceholder},
		"adjourned_groups": {AdjournedGroupDeletion, GroupDestroy}, "external_diffs": {ScheduleExternalDiffs},
	}
}

func TestReferenceHasEachConfigurationKey(t *testing.T) {
	t.Parallel()
	text := readReference(t)
	defaults := map[string]string{}
	// Of the defaults, no component but the first is enabled.
	var shown map[string]any
	require.NoError(t, yaml.Unmarshal(configuration(t).Show().YAML(), &shown))
	flatten(shown, "", defaults)
	for section, kinds := range sections() {
		documented := []string{}
		for _, kind := range kinds {
			for _, row := range text.section(t, kind).table("key") {
				key := strings.ReplaceAll(coded(row[0])[0], "<name>", "main")
				want, known := defaults[key]
				require.True(t, known, "section %s of docs/jobs.md: there is no key %s", kind, key)
				require.Equal(t, want, strings.Trim(row[1], "` "), "default of %s in docs/jobs.md", key)
				if strings.HasPrefix(key, section+".") {
					documented = append(documented, key)
				}
			}
		}
		var want []string
		for key := range defaults {
			if strings.HasPrefix(key, section+".") {
				want = append(want, key)
			}
		}
		require.ElementsMatch(t, want, documented, "keys of %s", section)
	}
}

// flatten collects values by their paths. Lists have none here.
func flatten(value any, path string, into map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			flatten(inner, yamlfile.Join(path, key), into)
		}
	case []any:
		into[path] = ""
	default:
		into[path] = fmt.Sprint(value)
	}
}
