package riverjobs

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// reference is docs/jobs.md, or a part of it.
type reference string

func readReference(t *testing.T) reference {
	t.Helper()
	text, err := os.ReadFile("../docs/jobs.md")
	require.NoError(t, err)
	return reference(text)
}

// section is what stands under a heading.
func (r reference) section(t *testing.T, heading string) reference {
	t.Helper()
	_, rest, found := strings.Cut(string(r), "\n## "+heading+"\n")
	require.True(t, found, "there is no section %q", heading)
	section, _, _ := strings.Cut(rest, "\n## ")
	return reference(section)
}

// table are the rows of the table whose first column has this title, each with its cells.
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

// coded are the texts in backticks.
func coded(text string) []string {
	var found []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

// named are the keys that the rows of a table are about.
func named(rows [][]string) []string {
	var names []string
	for _, row := range rows {
		names = append(names, coded(row[0])...)
	}
	return names
}
