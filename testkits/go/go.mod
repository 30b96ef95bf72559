module trocket.testkits/trockettest

go 1.19
