package scale

import "github.com/waterclock-io/waterclock/bench/report"

// The parts of docs/scale.md.
var (
	ModelPart = report.Part{
		Begin: "<!-- modelled: what stands between these two lines is made by bench/cmd/scale -page -->", End: "<!-- /modelled -->",
	}
	SimulationPart = report.Part{
		Begin: "<!-- simulated: what stands between these two lines is made by bench/cmd/simulate -page -->", End: "<!-- /simulated -->",
	}
)
