module tilewright

go 1.21
