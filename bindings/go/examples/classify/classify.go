// Classifies an image with an exported network of ImageNet's kind (resnet50 and others).
//
//	go run ./examples/classify model.so picture.ppm
//
// A picture is P6, of any size; other files are float32 values of the network's input, already normalized.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sort"

	"tilewright"
)

var mean, deviation = [3]float32{0.485, 0.456, 0.406}, [3]float32{0.229, 0.224, 0.225}

// readPicture gives the nearest pixels of a picture, as planes of normalized red, green and blue.
func readPicture(file []byte, height, width int) ([]float32, error) {
	var w, h, most int
	reader := bytes.NewReader(file)
	_, err := fmt.Fscanf(reader, "P6\n%d %d\n%d\n", &w, &h, &most)
	pixels := file[len(file)-reader.Len():]
	if err != nil || most != 255 || len(pixels) < w*h*3 {
		return nil, errors.New("expected a whole PPM of 8 bits")
	}
	var x []float32
	for c := 0; c < 3; c++ {
		for i := 0; i < height; i++ {
			for j := 0; j < width; j++ {
				value := float32(pixels[(i*h/height*w+j*w/width)*3+c])
				x = append(x, (value/255-mean[c])/deviation[c])
			}
		}
	}
	return x, nil
}

func readValues(file []byte) []float32 {
	x := make([]float32, len(file)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(file[4*i:]))
	}
	return x
}

func classify(path, image string) error {
	model, err := tilewright.Load(path)
	if err != nil {
		return err
	}
	defer model.Close()
	shape := model.Inputs[0].Shape
	if len(shape) != 4 || shape[2] < 0 || shape[3] < 0 {
		return errors.New("expected a network for images")
	}
	file, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	x := readValues(file)
	if bytes.HasPrefix(file, []byte("P6")) {
		if x, err = readPicture(file, int(shape[2]), int(shape[3])); err != nil {
			return err
		}
	}

	session, err := model.NewSession(0)
	if err != nil {
		return err
	}
	defer session.Close()
	outputs, err := session.Run([]tilewright.Tensor{tilewright.New(x, 1, 3, shape[2], shape[3])})
	if err != nil {
		return err
	}
	scores := tilewright.Values[float32](outputs[0])
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return scores[order[a]] > scores[order[b]] })
	for i := 0; i < 5 && i < len(order); i++ {
		fmt.Printf("%4d %9.4f\n", order[i], scores[order[i]])
	}
	return nil
}

func main() {
	err := errors.New("usage: classify MODEL IMAGE")
	if len(os.Args) == 3 {
		err = classify(os.Args[1], os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "classify:", err)
		os.Exit(1)
	}
}
