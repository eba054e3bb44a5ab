package kubeproxy
import ("testing";"os";"time")
func TestQuick(t *testing.T){
 for _,f:=range []string{"testdata/iptables-save.txt","/tmp/kp/big.txt"} {
  fh,_:=os.Open(f)
  st:=time.Now()
  rs,err:=Parse(fh); if err!=nil {t.Fatal(err)}
  p:=time.Since(st)
  rep:=Judge(rs,Options{})
  t.Log(f,p,time.Since(st),rep.Mode,rep.Version,len(rep.Services))
  for i,x:=range rep.Findings { if i<20 {t.Logf("%+v",x)}}
  ef,_:=os.Open("testdata/endpointslices.json"); eps,err:=LoadEndpointSlices(ef); if err!=nil{t.Fatal(err)}
  sf,_:=os.Open("testdata/services.json"); svcs,err:=LoadServices(sf); if err!=nil{t.Fatal(err)}
  if f[0]=='t' {
  for _,o:=range []Options{{Endpoints:eps},{Endpoints:eps,Services:svcs},{Endpoints:eps,Services:svcs,NodeName:"node0"}} {
  rep=Judge(rs,o)
  for i,x:=range rep.Findings { if i<20 {t.Logf("%+v",x)}}
  }
  for _,s:=range rep.Services {t.Logf("%+v",s)}
  }
 }
}
