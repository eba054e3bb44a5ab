"""The worlds' flows for the command replica: world.py and objs.json on the one side, JSON on the other.
usage: REPLICA=bin/replica replay.py     in a world's node, in place of the prototype of this name"""
import ast, json, os, re, subprocess, sys

here = os.path.dirname(os.path.abspath(__file__))
flows = eval(re.search(r'^FLOWS=(\[.*?^\(.hairpin.*?\])$', open(here+'/world.py').read(), re.M | re.S).group(1))
objects = json.load(open('objs.json'))
pods = [['10.244.0.9', 'fd00:244::9'], ['10.244.0.4', 'fd00:244::4']]
sender = {'client': ('10.244.0.9', 'fd00:244::9'), 'client2': ('10.244.1.9', 'fd00:244:1::9'), 'node': ('', ''), 'gw': ('203.0.113.7', '')}
at = lambda a, p: ('[%s]:%d' if ':' in a else '%s:%d') % (a, p)
want = {('192.168.50.1', 8081): [at('10.244.0.4', 8080)]}
for s in objects['services']:
    for p in s['spec']['ports']:
        slices = [e for e in objects['endpointslices'] if e['metadata']['namespace'] == s['metadata']['namespace']
                  and e['metadata']['labels']['kubernetes.io/service-name'] == s['metadata']['name']]
        ends = [at(a, q['port']) for e in slices for q in e['ports'] if q['name'] == p['name'] for x in e['endpoints'] for a in x['addresses']]
        for a in s['spec']['clusterIPs']+s['spec'].get('externalIPs', [])+[i['ip'] for i in s['status']['loadBalancer'].get('ingress', [])]:
            want[(a, p['port'])] = ends
        if 'nodePort' in p:
            want[('192.168.50.1', p['nodePort'])] = ends
spec = dict(Pods=pods, Flows=[dict(Name=n, From=sender[f][':' in ip], To=at(ip, port), Protocol='udp' if k == 'udp' else 'tcp', Big=k == 'big',
                                   Outside=n in ('p2out', 'n2out'), Want=want.get((ip, port), [])) for n, f, ip, port, k in flows])
if os.environ.get('GENERATED'):  # the flows that the program chooses itself
    services = []
    for s in objects['services']:
        p = s['spec']['ports'][0]
        ip = s['spec']['clusterIPs'][0]
        outer = [at(a, p['port']) for a in s['spec'].get('externalIPs', [])+[i['ip'] for i in s['status']['loadBalancer'].get('ingress', [])]]
        outer += [at('192.168.50.1', p['nodePort'])] if 'nodePort' in p else []
        services.append(dict(Name=s['metadata']['name'], Protocol=17 if p['protocol'] == 'UDP' else 6, Addresses=[at(ip, p['port'])], External=outer,
                             Endpoints=want[(ip, p['port'])], Local=s['spec'].get('externalTrafficPolicy') == 'Local'))
    order = ['kubernetes', 'kube-dns', 'local', 'remote', 'lb', 'six']
    services = [next(s for s in services if s['Name'] == n) for n in order]
    spec = dict(Pods=pods, Cluster=dict(Services=services, Servers=['192.168.50.2:6443'], Kubelet='192.168.50.1:10250', Outside=['203.0.113.7:8000']))
r = subprocess.run([os.environ['REPLICA']], input=json.dumps(spec), text=True, capture_output=True)
sys.stderr.write(r.stderr)
sys.stdout.write(r.stdout)
sys.exit(r.returncode)
