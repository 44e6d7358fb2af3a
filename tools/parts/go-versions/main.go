// Command go-versions reads lines with two versions of Go modules, and prints how they compare: -1, 0 or 1.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/semver"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		pair := strings.Fields(lines.Text())
		fmt.Println(semver.Compare(pair[0], pair[1]))
	}
}
