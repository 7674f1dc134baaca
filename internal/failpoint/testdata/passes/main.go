// Passes passes one point, and says so. TestCompiledOut builds it with the points and without.
package main

import (
	"fmt"

	"github.com/waterclock-io/waterclock/internal/failpoint"
)

func main() {
	failpoint.Here(failpoint.PlannerMarked)
	fmt.Println("passed", failpoint.Err(failpoint.StoreRetry))
}
