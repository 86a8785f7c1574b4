// What every binding is tried with; see test_bindings.py.
package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"

	"tilewright"
)

func require[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func show(what string, specs []tilewright.Spec) {
	for _, s := range specs {
		fmt.Printf("%s %s %v [%s]\n", what, s.Name, s.DType, strings.Join(s.Dims, ", "))
	}
}

func values(path string) []float32 {
	file := require(os.ReadFile(path))
	x := make([]float32, len(file)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(file[4*i:]))
	}
	return x
}

func keep(path string, t tilewright.Tensor) {
	if err := os.WriteFile(path, t.Data, 0o644); err != nil {
		panic(err)
	}
}

func refused(err error, withMessage bool) {
	e := err.(*tilewright.Error)
	if withMessage {
		fmt.Println("error", e.Status, e.Message)
	} else {
		fmt.Println("error", e.Status)
	}
}

func main() {
	first, second := require(tilewright.Load(os.Args[1])), require(tilewright.Load(os.Args[2]))
	for _, m := range []*tilewright.Model{first, second} {
		show("input", m.Inputs)
		show("output", m.Outputs)
	}
	a, b := require(first.NewSession(2)), require(second.NewSession(1))
	first.Close() // its session keeps what it needs
	x, picture := values(os.Args[3]), values(os.Args[4])
	shapes := require(a.Shapes([]tilewright.Tensor{{DType: tilewright.DTypeOf[float32](), Shape: []int64{7, 32}}}))
	fmt.Println("shapes", strings.ReplaceAll(fmt.Sprint(shapes[0]), " ", ", "))

	image := []tilewright.Tensor{tilewright.New(picture, 1, 3, 32, 32)}
	var beside sync.WaitGroup
	for range [4]int{} {
		beside.Add(1)
		go func() {
			defer beside.Done()
			for range [10]int{} {
				require(b.Run(image))
			}
		}()
	}
	in := []tilewright.Tensor{tilewright.New(x, 5, 32)}
	keep("y.bin", require(a.Run(in))[0])
	beside.Wait()
	keep("scores.bin", require(b.Run(image))[0])
	y := tilewright.New(make([]float32, 50), 5, 10)
	require(0, a.RunInto(in, []tilewright.Tensor{y}))
	keep("given.bin", y)
	third := require(tilewright.LoadWith(os.Args[5], os.Args[6]))
	packed := require(third.NewSession(1))
	keep("packed.bin", require(packed.Run(in))[0])
	packed.Close()
	third.Close()
	_, err := a.Run([]tilewright.Tensor{tilewright.New(x[:155], 5, 31)})
	refused(err, true)
	refused(a.RunInto(in, []tilewright.Tensor{tilewright.New(make([]float32, 45), 5, 9)}), true)
	_, err = tilewright.Load("lost.so")
	refused(err, false)
	_, err = tilewright.LoadWith(os.Args[5], "damaged.so")
	refused(err, true)
	a.Close()
	if _, err = a.Run(in); err == nil {
		panic("a closed session runs")
	}
	b.Close()
	second.Close()
}
