(** * Plans of partial arrays: what they are, and what they promise

    The statement for tiles that are summands, on top of [Spec.v]: part 1 is the plan as its JSON form (version 2) has
    it, part 2 what a type means whose tiles are summands, part 3 what the steps do that make sums or summands, part 4
    the promises.  [check_partial_plan_sound] in [PartialSound.v] says that a plan which the boolean
    [check_partial_plan] of [PartialCheck.v] accepts keeps every one of them. *)

From Coq Require Import ZArith List Bool.
From Redistrib.Checker Require Import Spec.
Import ListNotations.
Open Scope Z_scope.

(** ** 1. Plans *)

Inductive reduction := Sum | Max | Min.

(** [PType t xs r] is [t r{xs}]: tiles of [t] are summands along the mesh axes [xs], reduced by [r]; along no axes they
    are parts of the array itself. *)
Record ptype := PType { whole : type; partial : list Z; kind : reduction }.

(** Row [d] of [label] is the number of the summand of its tile that device [d] holds, below [count]. *)
Record pplacement := PPlacement { tiles : placement; label : list Z; count : Z; reduced_by : reduction }.

Inductive paction :=
| Move (x : action)  (** a step of [Spec.v]: a summand stays what it is *)
| ReduceScatter (groups : list (list device))
| AllReduce (groups : list (list device))
| ReduceExchange (how : implementation) (shares : list share) (splits : list Z)
| Unreduce (keeps : list device).

Record pstep := PStep { pbefore : Z; pafter : Z; pact : paction }.

Record pplan := PPlan {
  psource : ptype; psource_mesh : mesh;
  ptarget : ptype; ptarget_mesh : mesh;
  pplacements : list pplacement;
  psteps : list pstep }.

(** ** 2. What a partial type means *)

(** Elements can be added, and their maximum and minimum taken, in any order; a maximum or a minimum may count one
    twice. *)
Record algebra (V : Type) := Algebra {
  op : reduction -> V -> V -> V;
  neutral : reduction -> V;
  op_assoc : forall r x y z, op r x (op r y z) = op r (op r x y) z;
  op_comm : forall r x y, op r x y = op r y x;
  op_neutral : forall r x, op r (neutral r) x = x;
  op_twice : forall r x, r <> Sum -> op r x x = x }.
Arguments op {V} a r x y.
Arguments neutral {V} a r.

Definition total {V} (A : algebra V) (r : reduction) (xs : list V) : V := fold_right (op A r) (neutral A r) xs.

(** What is said of the devices' tiles by a type, or by a placement: their shape, where each starts, and which of how
    many summands each device holds. *)
Record layout := Layout {
  shape_of : point; start_of : device -> point;
  summands : Z; summand_of : device -> Z; reduces : reduction }.

(** A partial array is a stack of summands, whose first dimension is cut along the partial axes, one summand a slab. *)
Definition stack_type (m : mesh) (t : ptype) : type :=
  Dim 1 (partial t) (prod (map (entry 0 (axis_sizes m)) (partial t))) :: whole t.

Definition layout_of_type (m : mesh) (t : ptype) : layout :=
  Layout (local_shape (whole t)) (base_offset m (whole t))
    (prod (map (entry 0 (axis_sizes m)) (partial t)))
    (fun d => dim_offset m (axis_index m d) 1 (partial t)) (kind t).

Definition layout_of (s : point) (p : pplacement) : layout :=
  Layout (tile_of s (tiles p)) (offset_of s (tiles p)) (count p) (entry 0 (label p)) (reduced_by p).

(** The buffers [st] of [n] devices hold the array [x]: there are summands [w 0], [w 1] and so on that reduce to [x] in
    every element, and every device holds its tile of its summand. With one summand, that is [x] itself. *)
Definition represents {V} (A : algebra V) (n : Z) (y : layout) (st : state V) (x : point -> V) : Prop :=
  exists w : Z -> point -> V,
    (forall g, total A (reduces y) (map (fun k => w k g) (range (summands y))) = x g) /\
    forall d l, st d l = holding (is_device n) (shape_of y) (start_of y) (w (summand_of y d)) d l.

(** ** 3. What a step does to data *)

(** The stack of summands as an array with one more dimension: placements, shares and steps on it. *)
Definition stack (p : pplacement) : placement := Placement (count p :: grid (tiles p)) (zip cons (label p) (index (tiles p))).

Definition stack_share (b : pplacement) (h : share) : share :=
  Share (src h) (dst h) (round h) (entry 0 (label b) (src h) :: corner h) (1 :: extent h).

Definition stack_action (b : pplacement) (x : action) : action :=
  match x with
  | Exchange how shares => Exchange how (map (stack_share b) shares)
  | _ => x
  end.

(** The summands that make summand [j]: those from number [splits[j]] to [splits[j + 1] - 1]. *)
Definition run_of (splits : list Z) (j : Z) : list Z :=
  let first := entry 0 splits j in map (Z.add first) (range (entry 0 splits (j + 1) - first)).

(** Which part of the sum member [d] of a group keeps, row-major: where it starts in the members' tiles. *)
Definition part_start (tb ta : point) (group : list device) (d : device) : point :=
  times (entry [] (cells (quotient tb ta)) (position_of d group)) ta.

(** [psupply n s b a x d l]: the elements that device [d] adds up for local index [l] after the step: whose buffer, and
    where in it.  None at all makes the neutral element.

    - a step that moves summands: the one that it takes on the stack;
    - reduce-scatter and all-reduce: one from every member of the group, in the part that [d] keeps, or where [d] has it;
    - reduce-exchange: one's own if that summand is of the run that makes [d]'s, and of every share that covers the place;
    - unreduce: one's own, if [d] keeps it and it covers the place. *)
Definition psupply (n : Z) (s : point) (b a : pplacement) (x : paction) (d : device) (l : point)
  : option (list (device * point)) :=
  let tb := tile_of s (tiles b) in let ta := tile_of s (tiles a) in
  let ob := offset_of s (tiles b) in let g := plus (offset_of s (tiles a) d) l in
  let own := [(d, minus g (ob d))] in
  if is_device n d && inside ta l then
    match x with
    | Move y =>
        match supply n (count b :: s) (stack b) (stack a) (stack_action b y) d (0 :: l) with
        | Some (m, _ :: k) => Some [(m, k)]
        | _ => None
        end
    | ReduceScatter groups =>
        let group := group_of groups d in
        Some (map (fun m => (m, plus (part_start tb ta group d) l)) group)
    | AllReduce groups => Some (map (fun m => (m, l)) (group_of groups d))
    | ReduceExchange _ shares splits =>
        let mine := existsb (Z.eqb (entry 0 (label b) d)) (run_of splits (entry 0 (label a) d)) in
        let covers h := (dst h =? d) && in_box (corner h) (extent h) g in
        Some ((if mine && in_box (ob d) tb g then own else []) ++
              map (fun h => (src h, minus g (ob (src h)))) (filter covers shares))
    | Unreduce keeps => Some (if existsb (Z.eqb d) keeps && in_box (ob d) tb g then own else [])
    end
  else None.

(** All of the values, if all are there. *)
Fixpoint all_of {A} (l : list (option A)) : option (list A) :=
  match l with
  | [] => Some []
  | Some x :: r => match all_of r with Some xs => Some (x :: xs) | None => None end
  | None :: _ => None
  end.

(** Where both have several summands these are reduced alike; else by the one that has. *)
Definition step_reduction (b a : pplacement) : reduction := if count b =? 1 then reduced_by a else reduced_by b.

Section Running.
  Variable p : pplan.

  Definition pdevice_count : Z := devices (psource_mesh p).
  Definition parray_shape : point := global_shape (whole (psource p)).
  Definition pplaced (i : Z) : pplacement := entry (PPlacement (Placement [] []) [] 0 Sum) (pplacements p) i.
  Definition layout_at (i : Z) : layout := layout_of parray_shape (pplaced i).

  Definition run_pstep {V} (A : algebra V) (st : state V) (x : pstep) : state V := fun d l =>
    let b := pplaced (pbefore x) in let a := pplaced (pafter x) in
    match psupply pdevice_count parray_shape b a (pact x) d l with
    | Some from =>
        match all_of (map (fun mk => st (fst mk) (snd mk)) from) with
        | Some values => Some (total A (step_reduction b a) values)
        | None => None
        end
    | None => None
    end.

  Definition prun {V} (A : algebra V) (ss : list pstep) (st : state V) : state V := fold_left (run_pstep A) ss st.
End Running.

(** The library's [received].  An all-reduce counts as a reduce-scatter over parts as equal as can be, and a gather. *)
Definition preceived (s : point) (b a : pplacement) (x : paction) (d : device) : Z :=
  let tb := prod (tile_of s (tiles b)) in let ta := prod (tile_of s (tiles a)) in
  match x with
  | Move y => received (count b :: s) (stack b) (stack a) (stack_action b y) d
  | ReduceScatter groups => (len (group_of groups d) - 1) * ta
  | AllReduce groups =>
      let group := group_of groups d in let m := len group in
      tb + (m - 2) * (tb / m + (if position_of d group <? tb mod m then 1 else 0))
  | ReduceExchange how shares _ => sum (map (carried how shares) (to_device d shares))
  | Unreduce _ => 0
  end.

Definition pplan_received (p : pplan) (d : device) : Z :=
  sum (map (fun x => preceived (parray_shape p) (pplaced p (pbefore x)) (pplaced p (pafter x)) (pact x) d) (psteps p)).

(** ** 4. What an accepted plan promises *)

(** Who may hand data to device [d]: on the stack as in [Spec.v], members of its group, itself, senders of shares. *)
Definition pmay_supply (b : pplacement) (x : paction) (m d : device) (k : Z) (g : point) : Prop :=
  match x with
  | Move y => may_supply (stack_action b y) m d (k :: g)
  | ReduceScatter groups | AllReduce groups => exists group, In group groups /\ In m group /\ In d group
  | ReduceExchange _ shares _ =>
      m = d \/ exists h, In h shares /\ src h = m /\ dst h = d /\ in_box (corner h) (extent h) g = true
  | Unreduce keeps => m = d /\ In d keeps
  end.

(** The rules of one collective operation, data apart. *)
Definition pcollective_ok (n : Z) (s : point) (b a : pplacement) (x : paction) : Prop :=
  match x with
  | Move y => collective_ok n (count b :: s) (stack b) (stack a) (stack_action b y)
  | ReduceScatter groups | AllReduce groups => groups_ok (is_device n) groups
  | ReduceExchange _ shares _ => forall r, one_way n (map (fun h => (src h, dst h)) (in_round r shares))
  | Unreduce _ => True
  end.

Section Promises.
  Variable p : pplan.
  Let n := pdevice_count p.
  Let s := parray_shape p.

  Definition psource_layout : layout := layout_of_type (psource_mesh p) (psource p).
  Definition ptarget_layout : layout := layout_of_type (ptarget_mesh p) (ptarget p).

  (** Source and target are well-formed types of one array on one set of devices, all that there are; no axis cuts and
      is partial too. *)
  Definition has_all (m : mesh) : Prop := forall d, In d (device_at m) <-> is_device (devices m) d = true.
  Definition ptypes_ok : Prop :=
    mesh_ok (psource_mesh p) /\ mesh_ok (ptarget_mesh p) /\ has_all (psource_mesh p) /\ has_all (ptarget_mesh p) /\
    devices (ptarget_mesh p) = devices (psource_mesh p) /\
    type_ok (psource_mesh p) (stack_type (psource_mesh p) (psource p)) /\
    type_ok (ptarget_mesh p) (stack_type (ptarget_mesh p) (ptarget p)) /\
    global_shape (whole (ptarget p)) = global_shape (whole (psource p)).

  (** Whatever the array, however it is made of summands: buffers that hold it as the source type says hold it after the
      plan as the target type says. Where the target is whole, that is the sum itself, on every device of a tile. *)
  Definition predistributes : Prop :=
    forall V (A : algebra V) (x : point -> V) (st : state V),
    represents A n psource_layout st x -> represents A n ptarget_layout (prun p A (psteps p) st) x.

  (** So it is after every step, as the step's placement says. *)
  Definition ptracks_placements : Prop :=
    forall done y rest, psteps p = done ++ y :: rest ->
    forall V (A : algebra V) (x : point -> V) (st : state V),
    represents A n psource_layout st x -> represents A n (layout_at p (pafter y)) (prun p A (done ++ [y]) st) x.

  (** The collective is well formed, and all that goes into an element comes from those who may supply it, out of the
      tiles which they hold, from the same global coordinate. *)
  Definition plawful (y : pstep) : Prop :=
    let b := pplaced p (pbefore y) in let a := pplaced p (pafter y) in
    pcollective_ok n s b a (pact y) /\
    forall d l, is_device n d = true -> inside (tile_of s (tiles a)) l = true ->
    exists from, psupply n s b a (pact y) d l = Some from /\ forall m k, In (m, k) from ->
      let g := plus (offset_of s (tiles a) d) l in
      is_device n m = true /\ inside (tile_of s (tiles b)) k = true /\
      plus (offset_of s (tiles b) m) k = g /\ pmay_supply b (pact y) m d (entry 0 (label a) d) g.

  (** No tile at the source or on the way exceeds [limit] elements. *)
  Definition pwithin_bound (limit : Z) : Prop :=
    prod (local_shape (whole (psource p))) <= limit /\
    forall y, In y (psteps p) -> prod (tile_of s (tiles (pplaced p (pafter y)))) <= limit.

  Definition plarger_end : Z := Z.max (prod (local_shape (whole (psource p)))) (prod (local_shape (whole (ptarget p)))).

  Record ppromises (limit : Z) : Prop := {
    ppromises_types : ptypes_ok;
    ppromises_data : predistributes;
    ppromises_tracks : ptracks_placements;
    ppromises_lawful : forall y, In y (psteps p) -> plawful y;
    ppromises_bound : pwithin_bound limit }.
End Promises.
