import numpy as np
DT={"i8":np.int8,"i16":np.int16,"i32":np.int32,"i64":np.int64,"f32":np.float32,"f16":np.float16,"f64":np.float64}
def wrap(x,t):
    if isinstance(x,np.ndarray): return x
    b={"i8":8,"i16":16,"i32":32,"i64":64}[t]; return ((x+(1<<b-1))&((1<<b)-1))-(1<<b-1)
def operation(name, ops, res, attrs):
    t=ops[0]
    def divs(a,b):
        if isinstance(a,np.ndarray) or isinstance(b,np.ndarray):
            q=np.floor_divide(a,b); r=a-q*b
            return q+((r!=0)&((r<0)!=(np.asarray(a)<0)))
        if b==0: return -1
        q=abs(a)//abs(b); return wrap(q if (a<0)==(b<0) else -q,t)
    def rems(a,b):
        if isinstance(a,np.ndarray) or isinstance(b,np.ndarray): return np.fmod(a,b)
        return a-divs(a,b)*b if b else a
    simple={"arith.divsi":divs,"arith.remsi":rems,"arith.addi":lambda a,b: wrap(a+b,t),"arith.subi":lambda a,b:wrap(a-b,t),"arith.muli":lambda a,b:wrap(a*b,t),
     "arith.extsi":lambda a: a.astype(DT[res]) if isinstance(a,np.ndarray) else a,
     "arith.cmpi":lambda a,b: {"eq":np.equal,"ne":np.not_equal,"slt":np.less,"sge":np.greater_equal,"sgt":np.greater,"sle":np.less_equal}[attrs["predicate"]](a,b),
     "arith.select": lambda c,a,b: (np.where(c,a,b) if isinstance(c,np.ndarray) else (np.broadcast_to(np.asarray(a if c else b, DT.get(res)), np.broadcast(a,b).shape))),
     "arith.addf":lambda a,b:a+b}
    return simple.get(name)
def atomic(op, element):
    w=lambda x: x if element[0]!="i" else wrap(int(x),element)
    return {"add":lambda a,b:w(a+b),"fadd":lambda a,b:a+b,"exch":lambda a,b:b,"max":max,"min":min}[op]
